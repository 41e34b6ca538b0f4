// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/move_costs.hpp"

#include <algorithm>

namespace souk::market {

namespace {

using CostWide = MoveCosts::Wide;

constexpr int64_t waits_most = 950;  // of 1000

CostWide ceil_div(CostWide a, CostWide b) { return (a + b - 1) / b; }
CostWide up_div(CostWide a, CostWide b) { return a > 0 ? (a + b - 1) / b : 0; }

}  // namespace

MoveCost move_cost(int64_t bytes, int64_t dirty_bytes_per_s, int64_t link_bytes_per_s) {
    int64_t in_pause = bytes;
    int64_t carried = bytes;
    if (dirty_bytes_per_s >= 0) {
        const CostWide dirtied =
            static_cast<CostWide>(bytes) * dirty_bytes_per_s / link_bytes_per_s;
        in_pause = static_cast<int64_t>(std::min<CostWide>(bytes, dirtied));
        carried = bytes + in_pause;
    }
    const CostWide pause = static_cast<CostWide>(in_pause) * 1'000'000'000 / link_bytes_per_s;
    return {carried, Nanos{static_cast<int64_t>(std::min<CostWide>(pause, INT64_MAX))}};
}

int64_t waits_permille(const FileTraffic& f, int32_t cpus, int64_t link_bytes_per_s) {
    const CostWide ns = static_cast<CostWide>(f.requests_per_s) * f.round_trip.ns +
                        static_cast<CostWide>(f.bytes_per_s) * 1'000'000'000 / link_bytes_per_s;
    return static_cast<int64_t>(std::min<CostWide>(ns / 1'000'000 / cpus, waits_most));
}

MoveCosts::Wide MoveCosts::of_move(const MovedJob& job, int32_t speed, int32_t speed_top) const {
    const MoveCost cost = move_cost(job.bytes, job.dirty_bytes_per_s, rules_.link_bytes_per_s);
    const Wide per_ms = static_cast<Wide>(job.value.micro) * job.cpus;
    // two years
    const Wide pause_ms = std::min<Wide>(ceil_div(cost.pause.ns, 1'000'000), 1LL << 36);
    const Wide money =
        ceil_div(static_cast<Wide>(cost.bytes) * rules_.byte_cost_per_gb.micro, 1'000'000'000);
    return per_ms * speed * pause_ms + money * speed_top * 3'600'000;
}

// From value x cpus x (s' - s)/s_1 x H >= cost. Spans are in milliseconds, so that all products
// stay below 2^120.
ClassKey MoveCosts::bound(const MovedJob& job, const JobPlace& at, int32_t speed_top) const {
    if (job.files) return bound_with_files(job, at, speed_top);
    const Wide lost = of_move(job, at.speed, speed_top);
    if (lost == 0) return at.cls;
    const Wide per_ms = static_cast<Wide>(job.value.micro) * job.cpus;
    const Wide gained = per_ms * std::max<int64_t>(1, horizon_ms());
    if (gained == 0) return 0;
    const Wide step = ceil_div(lost, gained);
    return step > speed_max ? 0 : bound_of_speed(at.speed + static_cast<int64_t>(step));
}

MoveCosts::Stay MoveCosts::stay(const MovedJob& job, ProviderKey at, int32_t speed_top) const {
    const Wide per_ms = static_cast<Wide>(job.value.micro) * job.cpus;
    const int64_t span_ms = std::max<int64_t>(1, horizon_ms());
    if (job.is_home(at)) return {per_ms * span_ms, 0};
    const FileTraffic& f = *job.files;
    const int64_t waits = waits_permille(f, job.cpus, rules_.link_bytes_per_s);
    const int64_t goes_on_ms = std::max<int64_t>(
        1, static_cast<int64_t>(static_cast<Wide>(span_ms) * (1000 - waits) / 1000));
    const Wide bytes = static_cast<Wide>(f.bytes_per_s) * span_ms / 1000;
    const Wide money = up_div(bytes * rules_.byte_cost_per_gb.micro, 1'000'000'000);
    return {per_ms * goes_on_ms, money * speed_top * 3'600'000};
}

// The speeds elsewhere that are worth the move.
ClassKey MoveCosts::bound_with_files(const MovedJob& job, const JobPlace& at,
                                     int32_t speed_top) const {
    const Wide lost = of_move(job, at.speed, speed_top);
    const Stay here = stay(job, at.key, speed_top);
    const bool home = job.is_home(at.key);
    if (!home && lost == 0) return at.cls;
    const Stay away = home ? stay(job, ProviderKey{}, speed_top) : here;
    if (away.per_speed == 0) return 0;
    const Wide speed =
        up_div(here.at(at.speed) + std::max<Wide>(lost, 1) + away.cost, away.per_speed);
    return speed > speed_max ? 0 : bound_of_speed(static_cast<int64_t>(speed));
}

ClassKey MoveCosts::home_bound(const MovedJob& job, const JobPlace& at, int32_t speed_top) const {
    if (job.is_home(at.key)) return 0;
    const Wide per_speed =
        static_cast<Wide>(job.value.micro) * job.cpus * std::max<int64_t>(1, horizon_ms());
    if (per_speed == 0) return 0;
    const Wide lost = std::max<Wide>(of_move(job, at.speed, speed_top), 1);
    const Wide speed = up_div(stay(job, at.key, speed_top).at(at.speed) + lost, per_speed);
    return speed > speed_max ? 0
                             : bound_of_speed(std::max<int64_t>(1, static_cast<int64_t>(speed)));
}

}  // namespace souk::market
