// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/least_bids.hpp"

#include <algorithm>

namespace souk::market {

std::optional<Money> LeastBids::by_walk(const Allocator& market, int32_t cpus, int64_t memory_mb,
                                        std::span<const ProviderKey> barred) {
    std::optional<Money> least;
    market.machine_order().each([&](const MachineOrder::Entry& e) {
        const auto& m = market.machines()[e.machine];
        if (std::find(barred.begin(), barred.end(), m.key) != barred.end()) return true;
        const auto [strongest, fits] = market.displaced(m, cpus, memory_mb, Rank::top());
        if (!fits) return true;
        Money bid = market.least_bid_at(m);
        if (!strongest.is_top()) bid = std::max(bid, above(Money{-strongest.first}));
        if (bid <= money_max && (!least || bid < *least)) least = bid;
        return true;
    });
    return least;
}

// On each machine the weakest guest goes first, then the next: each gives room, for a higher bid.
std::vector<LeastBids::Step> LeastBids::build(const Allocator& market, int32_t cpus) {
    std::vector<Step> all;
    market.machine_order().each([&](const MachineOrder::Entry& e) {
        const auto& m = market.machines()[e.machine];
        int32_t free_cpus = m.free_cpus;
        const Money least = market.least_bid_at(m);
        Step step{least, m.free_mb, m.key};
        const size_t first = all.size();
        for (size_t i = m.guests.size();; --i) {
            if (step.bid > money_max) break;
            if (free_cpus >= cpus &&
                (all.size() == first || step.memory_mb > all.back().memory_mb)) {
                if (all.size() > first && all.back().bid == step.bid)
                    all.back() = step;
                else
                    all.push_back(step);
            }
            if (i == 0 || m.guests[i - 1].rank.is_top()) break;
            const Allocator::Guest& guest = m.guests[i - 1];
            free_cpus += guest.cpus;
            step.memory_mb += guest.memory_mb;
            step.bid = std::max(least, above(Money{-guest.rank.first}));
        }
        return true;
    });
    std::sort(all.begin(), all.end(), [](const Step& a, const Step& b) {
        return a.bid != b.bid ? a.bid < b.bid : a.memory_mb > b.memory_mb;
    });
    std::vector<Step> stairs;
    for (const Step& step : all)
        if (stairs.empty() || step.memory_mb > stairs.back().memory_mb) stairs.push_back(step);
    return stairs;
}

std::optional<Money> LeastBids::find(const Allocator& market, int32_t cpus, int64_t memory_mb,
                                     std::span<const ProviderKey> barred) {
    constexpr int walks_max = 16;
    constexpr size_t kept_max = 64;
    if (version_ != market.version() || by_cpus_.size() >= kept_max) by_cpus_.clear();
    version_ = market.version();
    Stairs& stairs = by_cpus_[cpus];
    if (!stairs.steps) {
        if (stairs.walks++ < walks_max) return by_walk(market, cpus, memory_mb, barred);
        stairs.steps = build(market, cpus);
    }
    const auto step = std::lower_bound(stairs.steps->begin(), stairs.steps->end(), memory_mb,
                                       [](const Step& s, int64_t mb) { return s.memory_mb < mb; });
    if (step == stairs.steps->end()) return std::nullopt;
    if (std::find(barred.begin(), barred.end(), step->place) == barred.end()) return step->bid;
    return by_walk(market, cpus, memory_mb, barred);
}

}  // namespace souk::market
