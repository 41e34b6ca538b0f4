// SPDX-License-Identifier: GPL-2.0-or-later
// The exact cost of run time. A price is micro-units per CPU-hour, time is nanoseconds, so a
// stretch of running is worth price x CPUs x ns / 3.6e12 micro-units. What a stretch leaves over
// below one micro-unit is kept and carried into the next one, whatever that one's price: no
// fraction is lost or invented, however often the price changes. An account ends at money_max,
// whatever run time a broken home may report.
#pragma once

#include <cstdint>

#include "kernel/base/money.hpp"
#include "kernel/base/time.hpp"

namespace souk::market {

inline constexpr int64_t hour_ns = 3'600'000'000'000;

struct Account {
    Money amount;
    int64_t rest = 0;  // in micro-unit x ns / hour_ns: 0 to hour_ns - 1
    bool operator==(const Account&) const = default;

    // Charges `cpus` CPUs at `price` for `span` (negative: takes it back) and returns by how much
    // `amount` changed. With a budget (> 0) the amount never passes it, nor does the charge pass
    // `most`, nor, when taking back, falls the amount below 0; what lies beyond is forgotten.
    Money charge(Money price, int64_t cpus, Nanos span, Money budget, Money most = money_max);
    // The longest span whose charge stays within the budget; never() without a budget or at price
    // 0.
    Nanos left(Money price, int64_t cpus, Money budget) const;
};

}  // namespace souk::market
