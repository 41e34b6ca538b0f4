// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/account.hpp"

#include <algorithm>

namespace souk::market {

Money Account::charge(Money price, int64_t cpus, Nanos span, Money budget, Money most) {
    const __int128 total = static_cast<__int128>(price.micro) * cpus * span.ns + rest;
    __int128 whole = total / hour_ns;
    int64_t left_over = static_cast<int64_t>(total % hour_ns);
    if (left_over < 0) {  // C++ rounds towards zero
        left_over += hour_ns;
        --whole;
    }
    if (whole > most.micro) {
        whole = most.micro;
        left_over = 0;
    }
    const Money before = amount;
    const __int128 now = before.micro + whole;
    if (now < 0) {
        amount = {};
        rest = 0;
    } else if (budget.micro > 0 && now >= budget.micro && whole >= 0) {
        amount = std::max(before, budget);
        rest = 0;
    } else if (now > money_max.micro) {
        amount = money_max;
        rest = 0;
    } else {
        amount.micro = static_cast<int64_t>(now);
        rest = left_over;
    }
    return amount - before;
}

Nanos Account::left(Money price, int64_t cpus, Money budget) const {
    const __int128 rate = static_cast<__int128>(price.micro) * cpus;
    if (budget.micro <= 0 || rate <= 0) return Nanos::never();
    if (amount >= budget) return {0};
    const __int128 room = static_cast<__int128>(budget.micro - amount.micro) * hour_ns - rest;
    const __int128 span = room / rate;
    return span >= INT64_MAX ? Nanos::never() : Nanos{static_cast<int64_t>(span)};
}

}  // namespace souk::market
