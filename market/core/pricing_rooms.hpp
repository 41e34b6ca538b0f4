// SPDX-License-Identifier: GPL-2.0-or-later
// The rooms of machines that a greedy from nothing fills, in order of choice. Owned by who reckons
// prices (pricing_integral.cpp); pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "market/core/named_rooms.hpp"
#include "market/core/pricing_integral.hpp"

namespace souk::market {

// Rooms in order of choice. Of each 16 of them, and each 256, it is known how much memory one with
// at least so many CPUs has at most. Room only shrinks, so that stays an upper bound, which a
// search that finds nothing there tightens; and a need that nobody holds is held by nobody ever
// after, nor is one of at least that much.
class Rooms {
  public:
    Rooms(const std::vector<EmptyMachine>& machines, NamedRooms named_rooms)
        : named(std::move(named_rooms)), cpus_(machines.size()), memory_mb_(machines.size()) {
        for (size_t p = 0; p < machines.size(); ++p)
            cpus_[p] = machines[p].cpus, memory_mb_[p] = machines[p].memory_mb;
        groups_.resize((machines.size() + width - 1) / width);
        for (size_t g = 0; g < groups_.size(); ++g) tighten_group(g);
        halls_.resize((groups_.size() + width - 1) / width);
        for (size_t h = 0; h < halls_.size(); ++h) tighten_hall(h);
        std::fill(std::begin(refused_), std::end(refused_), INT64_MAX);
    }
    NamedRooms named;  // not looked at by what is here

    size_t size() const { return cpus_.size(); }
    void take(size_t p, int32_t cpus, int64_t memory_mb) {
        cpus_[p] -= cpus;
        memory_mb_[p] -= memory_mb;
    }
    void give(size_t p, int32_t cpus, int64_t memory_mb) {
        take(p, -cpus, -memory_mb);
        tighten_group(p / width);
        tighten_hall(p / width / width);
        std::fill(std::begin(refused_), std::end(refused_), INT64_MAX);
    }
    std::pair<int64_t, int64_t> at(size_t p) const { return {cpus_[p], memory_mb_[p]}; }
    bool holds(size_t p, int32_t cpus, int64_t memory_mb) const {
        return cpus_[p] >= cpus && memory_mb_[p] >= memory_mb;
    }

    // The first from `p` on that holds as much and that check(place) says yes to; size() if there
    // is none.
    template <class Check>
    size_t first(size_t p, int32_t cpus, int64_t memory_mb, Check&& check) {
        const int32_t column = std::min(cpus, columns - 1);
        if (refused_[column] <= memory_mb) return size();
        bool held = p > 0;  // or not known
        while (p < size()) {
            const size_t h = p / (width * width),
                         hall_end = std::min(size(), (h + 1) * width * width);
            if (!halls_[h].holds(cpus, memory_mb)) {
                p = hall_end;
                continue;
            }
            const bool whole_hall = p % (width * width) == 0;
            while (p < hall_end) {
                const size_t g = p / width, end = std::min(size(), (g + 1) * width);
                if (groups_[g].holds(cpus, memory_mb)) {
                    const bool whole = p % width == 0;
                    for (; p < end; ++p) {
                        if (!holds(p, cpus, memory_mb)) continue;
                        if (check(p)) return p;
                        held = true;
                    }
                    if (whole) tighten_group(g);
                }
                p = end;
            }
            if (whole_hall) tighten_hall(h);
        }
        for (int32_t c = cpus; !held && c < columns; ++c)
            refused_[c] = std::min(refused_[c], memory_mb);
        return p;
    }

  private:
    static constexpr size_t width = 16;
    static constexpr int32_t columns = 64;
    static constexpr int32_t steps = 8;
    struct Most {
        int64_t memory_mb[steps];  // of those with at least 1, 2, .. 8 CPUs
        bool holds(int32_t cpus, int64_t mb) const {
            return memory_mb[std::clamp(cpus, 1, steps) - 1] >= mb;
        }
    };
    void tighten_group(size_t g) {
        Most& most = groups_[g];
        std::fill(std::begin(most.memory_mb), std::end(most.memory_mb), INT64_MIN);
        for (size_t p = g * width; p < std::min(size(), (g + 1) * width); ++p) {
            if (cpus_[p] < 1) continue;
            int64_t& step = most.memory_mb[std::min(cpus_[p], steps) - 1];
            step = std::max(step, memory_mb_[p]);
        }
        for (int32_t c = steps - 1; c > 0; --c)
            most.memory_mb[c - 1] = std::max(most.memory_mb[c - 1], most.memory_mb[c]);
    }
    void tighten_hall(size_t h) {
        halls_[h] = groups_[h * width];
        for (size_t g = h * width + 1; g < std::min(groups_.size(), (h + 1) * width); ++g)
            for (int32_t c = 0; c < steps; ++c)
                halls_[h].memory_mb[c] = std::max(halls_[h].memory_mb[c], groups_[g].memory_mb[c]);
    }

    std::vector<int32_t> cpus_;
    std::vector<int64_t> memory_mb_;
    std::vector<Most> groups_, halls_;
    // by CPUs (the last: of that many and more): the least memory that nobody holds
    int64_t refused_[columns];
};

}  // namespace souk::market
