// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/base/money.hpp"

#include "kernel/base/check.hpp"
#include "kernel/base/number.hpp"

namespace souk {
namespace {
constexpr __int128 ns_per_hour = __int128{3600} * 1'000'000'000;
}

Result<Money> parse_money(std::string_view text) {
    const auto point = text.find('.');
    const std::string_view whole = text.substr(0, point);
    const std::string_view part = point == std::string_view::npos ? "" : text.substr(point + 1);
    const auto digits = [](std::string_view s) {
        return s.find_first_not_of("0123456789") == std::string_view::npos;
    };
    if (whole.empty() || !digits(whole) || !digits(part) ||
        (point != std::string_view::npos && part.empty()))
        return fail("'" + std::string(text) +
                    "' is not an amount: use digits such as 40 or 0.25, without sign or unit");
    if (part.size() > 6)
        return fail("'" + std::string(text) + "' has more than six digits after the point");
    if (whole.size() > 10) return fail("'" + std::string(text) + "' is larger than 1000000000");
    const int64_t units = whole_number<int64_t>(whole).value_or(0);
    int64_t micro = whole_number<int64_t>(part).value_or(0);
    for (size_t i = part.size(); i < 6; ++i) micro *= 10;
    const Money m{units * 1'000'000 + micro};
    if (m > money_max) return fail("'" + std::string(text) + "' is larger than 1000000000");
    return m;
}

std::string format_money(Money m) {
    const bool negative = m.micro < 0;
    const uint64_t v = negative ? -static_cast<uint64_t>(m.micro) : static_cast<uint64_t>(m.micro);
    std::string part = std::to_string(v % 1'000'000);
    part.insert(0, 6 - part.size(), '0');
    while (!part.empty() && part.back() == '0') part.pop_back();
    std::string out = (negative ? "-" : "") + std::to_string(v / 1'000'000);
    if (!part.empty()) out += "." + part;
    return out;
}

Money cost_of(Money price, int64_t cpus, Nanos span) {
    MUST(price.micro >= 0 && cpus >= 0 && span.ns >= 0);
    return {static_cast<int64_t>(__int128{price.micro} * cpus * span.ns / ns_per_hour)};
}

Nanos span_for(Money amount, Money price, int64_t cpus) {
    MUST(amount.micro >= 0 && price.micro >= 0 && cpus > 0);
    if (price.micro == 0) return Nanos::never();
    // The largest span with floor(price*cpus*span/h) <= amount: price*cpus*span < (amount+1)*h.
    const __int128 span =
        ((__int128{amount.micro} + 1) * ns_per_hour - 1) / (__int128{price.micro} * cpus);
    return {span > INT64_MAX ? INT64_MAX : static_cast<int64_t>(span)};
}

}  // namespace souk
