// SPDX-License-Identifier: GPL-2.0-or-later
// AtReserve: an algorithm in which bids displace nobody, so that everybody pays just the reserves
// of the place: balance (balance.cpp) and the queues (first_come.cpp, backfilling.cpp) are such.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "market/core/algorithm.hpp"

namespace souk::market {

class AtReserve : public Algorithm {
  public:
    void take_over(Allocator& market) override {
        market.lift_limits();
        market.rank_by_value();
    }
    std::vector<Money> closed_prices(Allocator& market, std::vector<bool>& done) override {
        std::vector<Money> prices(market.jobs().size());
        done.assign(prices.size(), true);
        for (uint32_t j = 0; j < prices.size(); ++j)
            if (const auto& job = market.jobs()[j]; job.slot != Allocator::none)
                prices[j] = std::min(job.value, market.reserve_at(market.machines()[job.slot], j));
        return prices;
    }
    // The lowest reserve of those with room: a higher bid wins nothing more.
    std::optional<Money> least_bid(Allocator& market, int32_t cpus, int64_t memory_mb,
                                   std::span<const ProviderKey> barred, const Asker&) override {
        std::optional<Money> least;
        for (const auto& m : market.machines()) {
            const bool room = m.key.n != 0 && m.spec.accepting && m.free_cpus >= cpus &&
                              m.free_mb >= memory_mb &&
                              std::find(barred.begin(), barred.end(), m.key) == barred.end();
            if (room && (!least || m.spec.reserve < *least)) least = m.spec.reserve;
        }
        return least;
    }
    std::optional<Money> next_price(Allocator& market, uint32_t machine,
                                    const Rank& strongest) override {
        if (!strongest.is_top()) return std::nullopt;
        return market.machines()[machine].spec.reserve;
    }
};

}  // namespace souk::market
