// SPDX-License-Identifier: GPL-2.0-or-later
// The critical price where CPUs and memory break the ranking: for each running job q the greedy
// from nothing goes on without q, from q's rank down, as q's bid falls. Each bid that takes q's
// best remaining speed away, and each reserve that does so when q's bid falls below it, is one that
// q had to meet. (To follow only what differs from the greedy with q saves nothing: one hole in a
// packing soon displaces nearly everybody after it.) Pure, owned by nobody: critical_prices
// (pricing.hpp) builds and drops it.
#pragma once

#include <vector>

#include "market/core/allocator.hpp"

namespace souk::market {

// A machine as the competing jobs find it before the first of them is placed, in the order in which
// they choose.
struct EmptyMachine {
    uint32_t machine;
    int32_t speed;
    int32_t cpus;
    int64_t memory_mb;
    Money reserve;  // or the least bid that its class takes (Allocator::limits), if that is more
};
std::vector<EmptyMachine> empty_machines(const Allocator& market);

// `numerator` / `speed_top`, at least the machine's reserve, at most the job's bid.
Money bounded_price(__int128 numerator, int32_t speed_top, const Allocator::Machine& machine,
                    const Allocator::Job& job);

// `by_user`: jobs of one user do not price each other. Each is then priced without those of its
// user that rank after it, so that in all a user pays about what the others lose by its jobs;
// exactly that where ranks say who has what.
//
// Sets the price of every running job that is not done, and returns how many placements that took
// (tens of nanoseconds each): for each payer one for each bid after it, until no place is left that
// would take it.
uint64_t integral_prices(Allocator& market, std::vector<Money>& prices,
                         const std::vector<bool>& done, bool by_user = false);
// The same for those of `jobs` (by index, running) that `placements_max` allows, one at least, the
// highest ranked first: they are taken out of `jobs`.
uint64_t integral_prices_of(Allocator& market, std::vector<Money>& prices,
                            std::vector<uint32_t>& jobs, uint64_t placements_max,
                            bool by_user = false);

}  // namespace souk::market
