// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/combined_offers.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>

#include "kernel/base/rng.hpp"
#include "market/core/types.hpp"

namespace souk {
namespace {

using Wide = __int128;

// The figures of a choice, or of a part of one: none of them gets less with more components.
struct Tally {
    Nanos starts_in;
    int64_t slowest = INT64_MAX;
    Wide rate = 0;  // micro-units an hour
    int64_t away = 0;

    void add(const CombinedNeed& need, const CombinedRoom& room) {
        starts_in = std::max(starts_in, room.starts_in);
        slowest = std::min(slowest, room.speed);
        rate += Wide{room.price.micro} * need.cpus;
        away += room.site != 0;
    }
    // The lesser the better.
    std::array<Wide, 3> rank(const CombinedWish& wish) const {
        const Wide span =
            slowest == INT64_MAX ? 0 : Wide{wish.work.ns} * market::speed_standard / slowest;
        const Wide end = Wide{starts_in.ns} + span, cost = rate * (span / 1'000'000);
        if (wish.cheapest) return {cost, end, away};
        return {end, cost, away};
    }
};

class Search {
  public:
    Search(std::span<const CombinedNeed> needs, std::span<const CombinedRoom> rooms,
           const CombinedWish& wish, uint64_t seed)
        : needs_(needs), rooms_(rooms.begin(), rooms.end()), wish_(wish), order_(needs.size()) {
        std::iota(order_.begin(), order_.end(), size_t{0});
        std::ranges::stable_sort(order_, [&](size_t a, size_t b) {
            return std::pair(needs[a].cpus, needs[a].memory_mb) >
                   std::pair(needs[b].cpus, needs[b].memory_mb);
        });
        shuffle(seed);
    }

    std::optional<CombinedChoice> run() {
        for (const int64_t speed : speeds())
            for (const Fit fit : {Fit::fullest, Fit::emptiest, Fit::cheapest}) pack(speed, fit);
        taken_.assign(needs_.size(), 0);
        CombinedChoice choice;
        choice.exact = look(0, {});
        if (!best_) return std::nullopt;
        choice.rooms.resize(needs_.size());
        for (size_t i = 0; i < order_.size(); ++i) choice.rooms[order_[i]] = names_[(*best_)[i]];
        return choice;
    }

  private:
    enum class Fit : uint8_t { fullest, emptiest, cheapest };

    // Among equals the first room that is found wins, so the coin is in their order. The better
    // ones come first, so that the search soon has something to go by.
    void shuffle(uint64_t seed) {
        names_.resize(rooms_.size());
        std::iota(names_.begin(), names_.end(), size_t{0});
        Rng rng(seed);
        for (size_t i = names_.size(); i > 1; --i) std::swap(names_[i - 1], names_[rng.below(i)]);
        std::ranges::stable_sort(names_, [&](size_t a, size_t b) {
            Tally x, y;
            x.add({}, rooms_[a]);
            y.add({}, rooms_[b]);
            return x.rank(wish_) < y.rank(wish_);
        });
        std::vector<CombinedRoom> sorted;
        sorted.reserve(rooms_.size());
        for (const size_t name : names_) sorted.push_back(rooms_[name]);
        rooms_ = std::move(sorted);
    }

    std::set<int64_t> speeds() const {
        std::set<int64_t> all;
        for (const CombinedRoom& room : rooms_) all.insert(room.speed);
        return all;
    }

    static bool holds(const CombinedRoom& room, const CombinedNeed& need) {
        return room.cpus >= need.cpus && room.memory_mb >= need.memory_mb;
    }

    void note(const std::vector<size_t>& taken, const Tally& tally) {
        const auto rank = tally.rank(wish_);
        if (best_ && rank >= best_rank_) return;
        best_ = taken;
        best_rank_ = rank;
    }

    void pack(int64_t speed, Fit fit) {
        std::vector<CombinedRoom> left = rooms_;
        std::vector<size_t> taken;
        Tally tally;
        const auto is_better = [&](const CombinedRoom& a, const CombinedRoom& b) {
            if (fit == Fit::cheapest) return a.price < b.price;
            return fit == Fit::fullest ? a.cpus < b.cpus : a.cpus > b.cpus;
        };
        for (const size_t which : order_) {
            const CombinedNeed& need = needs_[which];
            size_t at = left.size();
            for (size_t i = 0; i < left.size(); ++i)
                if (left[i].speed >= speed && holds(left[i], need) &&
                    (at == left.size() || is_better(left[i], left[at])))
                    at = i;
            if (at == left.size()) return;
            left[at].cpus -= need.cpus;
            left[at].memory_mb -= need.memory_mb;
            tally.add(need, left[at]);
            taken.push_back(at);
        }
        note(taken, tally);
    }

    // True: nothing better is left out from here on.
    bool look(size_t depth, const Tally& so_far) {
        if (depth == order_.size()) {
            note(taken_, so_far);
            return true;
        }
        const CombinedNeed& need = needs_[order_[depth]];
        // Equal components go into rooms in their order: the other ways are the same.
        const bool same = depth > 0 && needs_[order_[depth - 1]] == need;
        bool all = true;
        for (size_t i = same ? taken_[depth - 1] : 0; i < rooms_.size(); ++i) {
            if (!holds(rooms_[i], need)) continue;
            if (++steps_ > combined_steps_max) return false;
            Tally tally = so_far;
            tally.add(need, rooms_[i]);
            if (best_ && tally.rank(wish_) >= best_rank_) continue;
            rooms_[i].cpus -= need.cpus;
            rooms_[i].memory_mb -= need.memory_mb;
            taken_[depth] = i;
            all = look(depth + 1, tally) && all;
            rooms_[i].cpus += need.cpus;
            rooms_[i].memory_mb += need.memory_mb;
        }
        return all;
    }

    std::span<const CombinedNeed> needs_;
    std::vector<CombinedRoom> rooms_;  // in the order of the search, what is left of each
    std::vector<size_t> names_;        // their numbers for the caller
    const CombinedWish& wish_;
    std::vector<size_t> order_;  // of the components: the largest first
    std::vector<size_t> taken_;
    std::optional<std::vector<size_t>> best_;
    std::array<Wide, 3> best_rank_{};
    int64_t steps_ = 0;
};

}  // namespace

std::optional<CombinedChoice> combine_offers(std::span<const CombinedNeed> needs,
                                             std::span<const CombinedRoom> rooms,
                                             const CombinedWish& wish, uint64_t seed) {
    if (needs.empty() || rooms.empty()) return std::nullopt;
    return Search(needs, rooms, wish, seed).run();
}

}  // namespace souk
