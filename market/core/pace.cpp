// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/pace.hpp"

#include <algorithm>

#include "market/core/account.hpp"

namespace souk::market {

Money paced_bid(const JobTerms& terms, Money spent, Nanos left) {
    if (!terms.pace || terms.budget.micro <= 0 || terms.finish.ns <= 0 || left.ns <= 0)
        return terms.max_price;
    const __int128 rest = std::max<int64_t>(0, terms.budget.micro - spent.micro);
    const __int128 price = rest * hour_ns / (static_cast<__int128>(terms.cpus) * left.ns);
    return {static_cast<int64_t>(std::clamp<__int128>(price, 1, terms.max_price.micro))};
}

Nanos pace_step(Nanos left) {
    return std::clamp(Nanos{left.ns / 100}, Nanos::from_s(1), Nanos::from_s(60));
}

}  // namespace souk::market
