// SPDX-License-Identifier: GPL-2.0-or-later
// Money: an amount, or a price per CPU-hour, in integer micro-units (1 unit = 1,000,000
// micro-units). Amounts are never floating point. Text is decimal units with at most six digits
// after the point: "40", "0.25".
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"

namespace souk {

struct Money {
    int64_t micro = 0;

    static constexpr Money units(int64_t v) { return {v * 1'000'000}; }
    constexpr auto operator<=>(const Money&) const = default;
    constexpr Money operator+(Money o) const { return {micro + o.micro}; }
    constexpr Money operator-(Money o) const { return {micro - o.micro}; }
    constexpr Money& operator+=(Money o) {
        micro += o.micro;
        return *this;
    }
    constexpr Money& operator-=(Money o) {
        micro -= o.micro;
        return *this;
    }
};

// The largest amount that text may state (a billion units), so that sums over any market stay far
// from overflow.
inline constexpr Money money_max = Money::units(1'000'000'000);

// Parses "40" or "0.25": digits, then at most one point and one to six digits; no sign, no unit, no
// blanks. Errors: what is wrong with the text, without the name of the option it came from.
Result<Money> parse_money(std::string_view text);
// Shortest decimal form: "40", "0.25", "-1.5".
std::string format_money(Money m);

// The cost of `cpus` CPUs for a span at a price per CPU-hour, rounded down to a micro-unit (128-bit
// inside).
Money cost_of(Money price_per_cpu_hour, int64_t cpus, Nanos span);
// The longest span whose cost stays within `amount`; Nanos::never() for price 0.
Nanos span_for(Money amount, Money price_per_cpu_hour, int64_t cpus);

}  // namespace souk
