// SPDX-License-Identifier: GPL-2.0-or-later
// The two total orders of the allocation: Rank over jobs (who chooses first) and ClassKey over
// machines (what is chosen first). Smaller goes first in both.
#pragma once

#include <compare>
#include <cstdint>

#include "market/core/types.hpp"

namespace souk::market {

// Value times weight (descending), arrival, key. Under proportional_share the first field is the
// place in the turn instead.
struct Rank {
    int64_t first = 0;
    int64_t second = 0;
    uint64_t key = 0;
    constexpr auto operator<=>(const Rank&) const = default;

    static constexpr Rank of(Money value, Nanos arrival, JobKey key,
                             int32_t weight = weight_plain) {
        return {-weighed(value, weight).micro, arrival.ns, key.n};
    }
    // Before every job: those that nobody can displace.
    static constexpr Rank top() { return {INT64_MIN, 0, 0}; }
    constexpr bool is_top() const { return first == INT64_MIN; }
};
// An asker, whose arrival and key decide between equals: with which bid would it rank before
// another one?
struct Asker {
    Nanos arrival;
    JobKey key;
    int32_t weight = weight_plain;
};
// Behind every job.
inline constexpr Rank rank_last{INT64_MAX, INT64_MAX, UINT64_MAX};

// Speed (descending), then reserve: machines of one class are interchangeable, a job gains nothing
// by moving between them. The reserve (money_max = 1e15 < 2^50 micro-units) is in the lower 50
// bits, the speed in the upper 14.
using ClassKey = uint64_t;
// not accepting; as a bound: any machine is better than none
inline constexpr ClassKey class_none = UINT64_MAX;
static_assert(money_max.micro < (1LL << 50) && speed_max < (1 << 14));

constexpr ClassKey class_of(int32_t speed, Money reserve) {
    return (static_cast<uint64_t>(speed_max - speed) << 50) | static_cast<uint64_t>(reserve.micro);
}
constexpr Money reserve_of(ClassKey cls) {
    return Money{static_cast<int64_t>(cls & ((1ULL << 50) - 1))};
}
// The bound below which are exactly the machines of at least this speed; speed may be above
// speed_max (then: none).
constexpr ClassKey bound_of_speed(int64_t speed) {
    return speed > speed_max ? 0 : (static_cast<uint64_t>(speed_max - speed + 1) << 50);
}

}  // namespace souk::market
