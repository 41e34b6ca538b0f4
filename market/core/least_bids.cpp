// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/least_bids.hpp"

#include <algorithm>

namespace souk::market {

namespace {

// Whoever bids so much comes before this, and nobody who bids less.
Rank at_reserve(Money bid) { return {-bid.micro, INT64_MAX, UINT64_MAX}; }

// A bid has to beat this: the reserve, or the strongest guest that would have to leave.
Rank to_beat(Money least, const Rank& strongest) {
    const Rank reserve = at_reserve(least);
    return strongest.is_top() ? reserve : std::min(reserve, strongest);
}

// The least bid, of who came when `asker` did, that ranks before it: the same bid, or the next
// whole unit.
Money bid_before(const Rank& beats, const Asker& asker) {
    const Money counts{-beats.first}, bid = least_weighed(counts, asker.weight);
    const bool enough =
        beats.second == INT64_MAX || Rank::of(bid, asker.arrival, asker.key, asker.weight) < beats;
    return enough ? bid : above(bid);
}
// The same, and at least what the machine takes, which weight does not lower.
Money bid_for(Money least, const Rank& strongest, const Asker& asker) {
    return strongest.is_top() ? least : std::max(least, bid_before(strongest, asker));
}

}  // namespace

std::optional<Money> LeastBids::by_walk(const Allocator& market, int32_t cpus, int64_t memory_mb,
                                        std::span<const ProviderKey> barred, const Asker& asker) {
    std::optional<Money> least;
    market.machine_order().each([&](const MachineOrder::Entry& e) {
        const auto& m = market.machines()[e.machine];
        if (std::binary_search(barred.begin(), barred.end(), m.key)) return true;
        const auto [strongest, fits] = market.displaced(m, cpus, memory_mb, Rank::top());
        if (!fits) return true;
        const Money bid = bid_for(market.least_bid_at(m), strongest, asker);
        if (bid <= money_max && (!least || bid < *least)) least = bid;
        return true;
    });
    return least;
}

std::optional<Money> LeastBids::with_named(const Allocator& market, uint32_t job,
                                           std::span<const ProviderKey> barred,
                                           const Asker& asker) {
    const auto [licensed, enough] = market.licences().displaced(market.takes_licences(job));
    if (!enough) return {};
    const Money beats = licensed.is_top() ? Money{} : bid_before(licensed, asker);
    std::optional<Money> least;
    market.machine_order().each([&](const MachineOrder::Entry& e) {
        const auto& m = market.machines()[e.machine];
        if (!market.has_named(m, job) || std::binary_search(barred.begin(), barred.end(), m.key))
            return true;
        const auto [strongest, fits] = market.displaced(m, job, Rank::top());
        if (!fits) return true;
        const Money named = market.reserve_at(m, job) - m.spec.reserve;
        const Money bid =
            std::max(beats, bid_for(market.least_bid_at(m) + named, strongest, asker));
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
        Step step{at_reserve(least), m.free_mb, m.key};
        const size_t first = all.size();
        for (size_t i = m.guests.size();; --i) {
            if (Money{-step.beats.first} > money_max) break;
            if (free_cpus >= cpus &&
                (all.size() == first || step.memory_mb > all.back().memory_mb)) {
                if (all.size() > first && all.back().beats == step.beats)
                    all.back() = step;
                else
                    all.push_back(step);
            }
            if (i == 0 || m.guests[i - 1].rank.is_top()) break;
            const Allocator::Guest& guest = m.guests[i - 1];
            free_cpus += guest.cpus;
            step.memory_mb += guest.memory_mb;
            step.beats = to_beat(least, guest.rank);
        }
        return true;
    });
    // The weakest first: what comes before a rank comes before all that rank after it.
    std::sort(all.begin(), all.end(), [](const Step& a, const Step& b) {
        return a.beats != b.beats ? b.beats < a.beats : a.memory_mb > b.memory_mb;
    });
    std::vector<Step> stairs;
    for (const Step& step : all)
        if (stairs.empty() || step.memory_mb > stairs.back().memory_mb) stairs.push_back(step);
    return stairs;
}

std::optional<Money> LeastBids::find(const Allocator& market, int32_t cpus, int64_t memory_mb,
                                     std::span<const ProviderKey> barred, const Asker& asker) {
    constexpr int walks_max = 16;
    constexpr size_t kept_max = 64;
    if (asker.weight != weight_plain) return by_walk(market, cpus, memory_mb, barred, asker);
    if (version_ != market.version() || by_cpus_.size() >= kept_max) by_cpus_.clear();
    version_ = market.version();
    Stairs& stairs = by_cpus_[cpus];
    if (!stairs.steps) {
        if (stairs.walks++ < walks_max) return by_walk(market, cpus, memory_mb, barred, asker);
        stairs.steps = build(market, cpus);
    }
    auto step = std::lower_bound(stairs.steps->begin(), stairs.steps->end(), memory_mb,
                                 [](const Step& s, int64_t mb) { return s.memory_mb < mb; });
    if (step == stairs.steps->end()) return std::nullopt;
    if (std::find(barred.begin(), barred.end(), step->place) != barred.end())
        return by_walk(market, cpus, memory_mb, barred, asker);
    Money bid = bid_before(step->beats, asker);
    // A reserve that is no whole unit may lie below the unit above a weaker bid.
    for (++step; step != stairs.steps->end() && Money{-step->beats.first} < bid; ++step)
        if (std::find(barred.begin(), barred.end(), step->place) == barred.end())
            bid = std::min(bid, bid_before(step->beats, asker));
    if (bid > money_max) return std::nullopt;
    return bid;
}

}  // namespace souk::market
