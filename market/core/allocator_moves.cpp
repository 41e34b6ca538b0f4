// SPDX-License-Identifier: GPL-2.0-or-later
// Allocator: what a move costs, and from which class on it is worth that.
#include <algorithm>

#include "market/core/allocator.hpp"

namespace souk::market {

namespace {
using Wide = __int128;

Wide ceil_div(Wide a, Wide b) { return (a + b - 1) / b; }
}  // namespace

MoveCost move_cost(int64_t bytes, int64_t dirty_bytes_per_s, int64_t link_bytes_per_s) {
    int64_t in_pause = bytes;
    int64_t carried = bytes;
    if (dirty_bytes_per_s >= 0) {
        const Wide dirtied = static_cast<Wide>(bytes) * dirty_bytes_per_s / link_bytes_per_s;
        in_pause = static_cast<int64_t>(std::min<Wide>(bytes, dirtied));
        carried = bytes + in_pause;
    }
    const Wide pause = static_cast<Wide>(in_pause) * 1'000'000'000 / link_bytes_per_s;
    return {carried, Nanos{static_cast<int64_t>(std::min<Wide>(pause, INT64_MAX))}};
}

// The cost of a move, in micro-units of an hour x fastest speed x ms of an hour.
__int128 Allocator::lost_by_move(uint32_t j, const Machine& from) const {
    const MoveCost cost =
        move_cost(bytes_of(j), details_[j].dirty_bytes_per_s, rules_.link_bytes_per_s);
    const Wide per_ms = static_cast<Wide>(jobs_[j].value.micro) * jobs_[j].cpus;
    // two years
    const Wide pause_ms = std::min<Wide>(ceil_div(cost.pause.ns, 1'000'000), 1LL << 36);
    const Wide money =
        ceil_div(static_cast<Wide>(cost.bytes) * rules_.byte_cost_per_gb.micro, 1'000'000'000);
    return per_ms * from.spec.speed * pause_ms + money * speed_top() * 3'600'000;
}

// The least class bound that makes a move worth its cost, from value x cpus x (s' - s)/s_1 x H >=
// cost. Spans in milliseconds, so that all products stay below 2^120.
ClassKey Allocator::bound_at(uint32_t j, const Machine& m) const {
    if (assigned_) return 0;
    if (rules_.horizon.ns == 0) return m.cls;
    if (jobs_[j].files) return bound_with_files(j, m);
    const Wide lost = lost_by_move(j, m);
    if (lost == 0) return m.cls;
    const Wide per_ms = static_cast<Wide>(jobs_[j].value.micro) * jobs_[j].cpus;
    const Wide gained = per_ms * std::max<int64_t>(1, rules_.horizon.ns / 1'000'000);
    if (gained == 0) return 0;
    const Wide step = ceil_div(lost, gained);
    return step > speed_max ? 0 : bound_of_speed(m.spec.speed + static_cast<int64_t>(step));
}

}  // namespace souk::market
