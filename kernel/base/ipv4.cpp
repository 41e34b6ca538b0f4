// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/base/ipv4.hpp"

#include "kernel/base/number.hpp"

namespace souk {
namespace {
// The number that begins `text`, without leading zeros, which some read as octal; takes it off. -1:
// there is none up to `most`.
int take_part(std::string_view& text, int most) {
    std::string_view rest = text;
    const auto n = take_number<int>(rest);
    const bool leading_zero = text.size() - rest.size() > 1 && text.starts_with('0');
    if (!n || *n < 0 || *n > most || text.starts_with('-') || leading_zero) return -1;
    text = rest;
    return *n;
}
}  // namespace

std::string Ipv4::text() const {
    std::string out;
    for (int shift = 24; shift >= 0; shift -= 8)
        out += std::to_string(n >> shift & 0xff) + (shift ? "." : "");
    return out;
}

Result<Ipv4> parse_ipv4(std::string_view text) {
    const auto bad = fail("'" + std::string(text) + "' is no IPv4 address");
    Ipv4 a;
    for (int i = 0; i < 4; ++i) {
        if (i > 0 && !text.starts_with('.')) return bad;
        if (i > 0) text.remove_prefix(1);
        const int byte = take_part(text, 255);
        if (byte < 0) return bad;
        a.n = a.n << 8 | static_cast<uint32_t>(byte);
    }
    if (!text.empty()) return bad;
    return a;
}

Result<Ipv4Range> parse_ipv4_range(std::string_view text) {
    const size_t slash = text.find('/');
    if (slash == std::string_view::npos)
        return fail("'" + std::string(text) + "' is no range of addresses: ADDRESS/BITS");
    Ipv4Range r;
    TRY_ASSIGN(r.first, parse_ipv4(text.substr(0, slash)));
    std::string_view bits = text.substr(slash + 1);
    r.prefix = take_part(bits, 30);
    if (r.prefix < 8 || !bits.empty())
        return fail("'" + std::string(text) + "': 8 to 30 bits are wanted behind the /");
    if (r.first.n % r.size() != 0)
        return fail("'" + std::string(text) + "' does not begin where a range of its size does");
    return r;
}

}  // namespace souk
