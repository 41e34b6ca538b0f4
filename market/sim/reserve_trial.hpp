// SPDX-License-Identifier: GPL-2.0-or-later
// ReserveTrial: an owner who lends one more CPU on a recorded workload, and learns what to ask
// (market/core/reserve_learner.hpp). Each hour one more place costs what the least bid is that has
// one, of those that want one, the dearest first; nothing while CPUs are free. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "market/sim/replay.hpp"

namespace souk::sim {

// At the begin of each hour from the first submission to the last end.
std::vector<Money> hourly_prices(std::span<const ReplayJob> jobs, const Schedule& schedule,
                                 const ReplayTerms& terms, int64_t cpus);

struct ReserveOutcome {
    size_t hours = 0;
    double asked = 0;  // what the learned prices brought
    double fixed = 0;  // the best fixed price in hindsight
    Money fixed_price;
    double all = 0;  // each hour's own price: nobody can have more
    double regret() const { return fixed > 0 ? 1 - asked / fixed : 0; }
};
// `window_h`: hours that it remembers, as long as the market's history of prices.
ReserveOutcome try_reserve(std::span<const Money> prices, Money floor, uint64_t seed, double bonus,
                           size_t window_h = 720);

}  // namespace souk::sim
