// SPDX-License-Identifier: GPL-2.0-or-later
// LeastBids: what a job must bid to get a place at once, for every need, as the market stands. Who
// asks for one need gets it by a walk over the machines. Who asks for many (what to tell each of
// 100,000 jobs that wait) gets, for each number of CPUs, a staircase: the bids that buy more memory
// than any lower one, each with a place where it does. To build it costs a look at every guest of
// every machine and a sort; a question is then a binary search. Both ways give the same
// (tests/unit/test_solver.cpp). Owned by the Solver; forgets all when the market changes.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "market/core/allocator.hpp"

namespace souk::market {

// The next whole unit: beats a bid whoever came first, and reads well.
inline Money above(Money bid) { return Money::units(bid.micro / 1'000'000 + 1); }
// An asker that ranks after everybody of an equal bid.
inline constexpr Asker newest{Nanos{INT64_MAX}, JobKey{UINT64_MAX}};

class LeastBids {
  public:
    // At least what a machine takes (Allocator::least_bid_at) where the need then fits beside
    // whoever cannot be displaced; at most money_max. nullopt: no bid does it.
    std::optional<Money> find(const Allocator& market, int32_t cpus, int64_t memory_mb,
                              std::span<const ProviderKey> barred, const Asker& asker = newest);
    static std::optional<Money> by_walk(const Allocator& market, int32_t cpus, int64_t memory_mb,
                                        std::span<const ProviderKey> barred,
                                        const Asker& asker = newest);
    // The same for a job of the market that asks for named resources.
    static std::optional<Money> with_named(const Allocator& market, uint32_t job,
                                           std::span<const ProviderKey> barred, const Asker& asker);

  private:
    struct Step {
        Rank beats;         // who weighs weight_plain and ranks before this has the place
        int64_t memory_mb;  // that it buys
        ProviderKey place;
    };
    struct Stairs {
        int walks = 0;
        std::optional<std::vector<Step>> steps;  // what is beaten and the memory both rise
    };
    static std::vector<Step> build(const Allocator& market, int32_t cpus);

    uint64_t version_ = UINT64_MAX;
    std::map<int32_t, Stairs> by_cpus_;
};

}  // namespace souk::market
