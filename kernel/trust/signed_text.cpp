// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/trust/signed_text.hpp"

#include "kernel/trust/openssl.hpp"

namespace souk::trust {
namespace {

constexpr std::string_view signed_by = "signature ";

}  // namespace

Result<std::string> sign_text(std::string lines, const Key& issuing) {
    TRY_ASSIGN(const std::string signature, issuing.sign(lines));
    lines += signed_by;
    return lines + hex(signature) + "\n";
}

Result<SignedText> take_apart(std::string_view text, std::string_view heading,
                              const std::string& what, size_t bytes_max) {
    if (text.size() > bytes_max) return fail("a " + what + " of too many bytes");
    if (!text.starts_with(heading)) return fail("this is no " + what);
    std::string_view rest = text.substr(heading.size());
    while (!rest.starts_with(signed_by)) {
        if (rest.find('\n') == rest.npos) return fail("a " + what + " without a signature");
        (void)take_line(rest);
    }
    SignedText found;
    found.body = text.substr(0, text.size() - rest.size());
    found.lines = found.body.substr(heading.size());
    if (rest.find('\n') == rest.npos)
        return fail("a " + what + " that ends in the middle of a line");
    const std::string_view last = take_line(rest);
    if (!rest.empty()) return fail("a " + what + " that goes on behind its signature");
    TRY_ASSIGN(found.signature, from_hex(last.substr(signed_by.size())));
    return found;
}

std::string_view take_line(std::string_view& lines) {
    const size_t end = lines.find('\n');
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(end + 1);
    return line;
}

}  // namespace souk::trust
