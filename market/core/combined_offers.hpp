// SPDX-License-Identifier: GPL-2.0-or-later
// Combined offers: which rooms the components of one gang take when several sites offer some
// (docs/sites.md). Each room is on one machine of a site, the gang's own site's among them. All
// components get a room, or none does.
//
// A gang begins when its last room is clear, and runs as fast as its slowest machine; it costs what
// all its rooms cost for that time. By its user's metric the earliest end is the best, or the
// least cost; the other decides among equals, then the fewest components away from home, then a
// coin by the seed.
//
//   few offers   a search with bounds, which is exact when it comes to its end (steps_max)
//   many         the best that a greedy packing finds. For each speed that a machine has, it packs
//                into the machines of at least that speed: the largest component first, into the
//                room that is left the fullest, the emptiest, or is the cheapest. So it finds what
//                "the most idle first" alone misses (5, 5, 3, 3, 3 on 10 and 9).
//
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernel/base/money.hpp"
#include "kernel/base/time.hpp"

namespace souk {

struct CombinedNeed {
    int32_t cpus = 1;
    int64_t memory_mb = 0;
    bool operator==(const CombinedNeed&) const = default;
};

struct CombinedRoom {
    size_t site = 0;  // as the caller counts them; 0: its own
    int64_t cpus = 0, memory_mb = 0;
    Money price;        // per CPU-hour
    int64_t speed = 1;  // at least 1
    Nanos starts_in;    // so long it takes to clear it
    bool operator==(const CombinedRoom&) const = default;
};

struct CombinedWish {
    bool cheapest = false;
    Nanos work;  // on a standard machine
};

struct CombinedChoice {
    std::vector<size_t> rooms;  // of each component
    bool exact = false;         // no other choice is better
};

inline constexpr int64_t combined_steps_max = 100'000;

// nullopt: no way was found to give each a room.
std::optional<CombinedChoice> combine_offers(std::span<const CombinedNeed> needs,
                                             std::span<const CombinedRoom> rooms,
                                             const CombinedWish& wish, uint64_t seed);

}  // namespace souk
