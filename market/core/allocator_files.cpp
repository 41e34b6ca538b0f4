// SPDX-License-Identifier: GPL-2.0-or-later
// The Allocator where files have a place (JobDemand::files): a job that runs away from its home
// reads and writes them over the network. With a horizon H that is part of what a place must pay
// for. Over H a place is worth to the job, in value x cpus x speed / fastest speed x time:
//   at home    H at the speed of its home
//   elsewhere  H x (1 - w) at the speed there, less what carrying bytes/s x H bytes costs
// where w is the part of the time in which it waits for its files: (requests/s x round trip +
// bytes/s / link) / cpus, at most 95 %. So of two other places the faster one is still the better,
// and home is like a machine of a higher speed for this one job: it chooses it where that is worth
// at least as much as the best other place, moves there when that gains more than the move costs,
// and leaves it for what gains more than the move costs, beside the traffic. What is gained in
// either direction is what is lost in the other, so nobody goes back and forth as long as the
// traffic stays. A move of a job with files is never undone to save bytes (settle).
//
// With H = 0 files are not looked at, as no move has a price; prices never look at them.
#include <algorithm>

#include "market/core/allocator.hpp"

namespace souk::market {
namespace {

using Wide = __int128;

constexpr int64_t waits_most = 950;  // of 1000

Wide up_div(Wide a, Wide b) { return a > 0 ? (a + b - 1) / b : 0; }

}  // namespace

int64_t waits_permille(const FileTraffic& f, int32_t cpus, int64_t link_bytes_per_s) {
    const Wide ns = static_cast<Wide>(f.requests_per_s) * f.round_trip.ns +
                    static_cast<Wide>(f.bytes_per_s) * 1'000'000'000 / link_bytes_per_s;
    return static_cast<int64_t>(std::min<Wide>(ns / 1'000'000 / cpus, waits_most));
}

// The worth of the horizon at a place: value x cpus x speed x ms, less `cost` (as lost_by_move).
struct Allocator::Stay {
    Wide per_speed = 0;
    Wide cost = 0;
    Wide at(int32_t speed) const { return per_speed * speed - cost; }
};

Allocator::Stay Allocator::stay_at(uint32_t j, const Machine& m) const {
    const Wide per_ms = static_cast<Wide>(jobs_[j].value.micro) * jobs_[j].cpus;
    const int64_t horizon_ms = std::max<int64_t>(1, rules_.horizon.ns / 1'000'000);
    if (is_home(j, m)) return {per_ms * horizon_ms, 0};
    const FileTraffic& f = details_[j].files->traffic;
    const int64_t waits = waits_permille(f, jobs_[j].cpus, rules_.link_bytes_per_s);
    const int64_t goes_on_ms = std::max<int64_t>(
        1, static_cast<int64_t>(static_cast<Wide>(horizon_ms) * (1000 - waits) / 1000));
    const Wide bytes = static_cast<Wide>(f.bytes_per_s) * horizon_ms / 1000;
    const Wide money = up_div(bytes * rules_.byte_cost_per_gb.micro, 1'000'000'000);
    return {per_ms * goes_on_ms, money * speed_top() * 3'600'000};
}

// bound_at() of a job with files: the speeds elsewhere that are worth the move.
ClassKey Allocator::bound_with_files(uint32_t j, const Machine& m) const {
    const Wide lost = lost_by_move(j, m);
    const Stay here = stay_at(j, m);
    const bool home = is_home(j, m);
    if (!home && lost == 0) return m.cls;
    const Stay away = home ? stay_at(j, Machine{}) : here;
    if (away.per_speed == 0) return 0;
    const Wide speed =
        up_div(here.at(m.spec.speed) + std::max<Wide>(lost, 1) + away.cost, away.per_speed);
    return speed > speed_max ? 0 : bound_of_speed(static_cast<int64_t>(speed));
}

// The speeds of its home that are worth the move there; from its home itself: none.
ClassKey Allocator::home_bound_at(uint32_t j, const Machine& m) const {
    if (is_home(j, m)) return 0;
    const Wide per_speed = static_cast<Wide>(jobs_[j].value.micro) * jobs_[j].cpus *
                           std::max<int64_t>(1, rules_.horizon.ns / 1'000'000);
    if (per_speed == 0) return 0;
    const Wide speed =
        up_div(stay_at(j, m).at(m.spec.speed) + std::max<Wide>(lost_by_move(j, m), 1), per_speed);
    return speed > speed_max ? 0
                             : bound_of_speed(std::max<int64_t>(1, static_cast<int64_t>(speed)));
}

// gains_by_leaving() of a job with files: in the best other class, or at home.
bool Allocator::gains_with_files(uint32_t j, const Machine& m) const {
    const uint32_t h = find_machine(details_[j].files->traffic.home);
    const Machine elsewhere;
    const int64_t horizon_ms = std::max<int64_t>(1, rules_.horizon.ns / 1'000'000);
    Wide here = 0, best = 0;
    for (const ClassLevel& c : levels_) {
        const auto speed = static_cast<int32_t>(speed_max - static_cast<int64_t>(c.cls >> 50));
        const Wide price = c.level * jobs_[j].cpus * horizon_ms;
        if (c.cls == m.cls)
            here = stay_at(j, m).at(speed) - price;
        else
            best = std::max(best, stay_at(j, elsewhere).at(speed) - price);
        if (h != none && c.cls == machines_[h].cls && !is_home(j, m))
            best = std::max(best, stay_at(j, machines_[h]).at(speed) - price);
    }
    return best > here && best - here >= lost_by_move(j, m);
}

// Its home, if that is of a class before `below`, has a place for it, and is worth at least what
// `better` is.
MachineOrder::Place Allocator::better_home(uint32_t j, const MachineOrder::Place& better,
                                           ClassKey below) {
    const uint32_t m = find_machine(details_[j].files->traffic.home);
    if (m == none) return {};
    const Machine& home = machines_[m];
    if (!home.spec.accepting || home.cls >= below) return {};
    if (!limits_.empty() && !admits(home.cls, jobs_[j].rank)) return {};
    const MachineOrder::Place place = machine_order_.find({home.cls, home.key.n});
    if (!has_place(machine_order_[place], j)) return {};
    if (better) {
        const Machine& other = machines_[machine_order_[better].machine];
        if (stay_at(j, other).at(other.spec.speed) > stay_at(j, home).at(home.spec.speed))
            return {};
    }
    return place;
}

// Finds the first job after the machine's cursor that runs elsewhere, has its files here and would
// come. (Jobs that run nowhere come to any machine.)
uint32_t Allocator::next_native(const Machine& m) const {
    if (natives_.empty() || rules_.horizon.ns == 0 || assigned_) return none;
    const auto natives = natives_.find(m.key.n);
    if (natives == natives_.end()) return none;
    for (auto n = natives->second.upper_bound({m.cursor, UINT32_MAX}); n != natives->second.end();
         ++n) {
        const auto [rank, j] = *n;
        const Job& job = jobs_[j];
        if (job.slot == none || job.staged || details_[j].files->bound <= m.cls) continue;
        if (!eligible(m, j) || (!limits_.empty() && !admits(m.cls, rank))) continue;
        if (displaced(m, job.cpus, job.memory_mb, rank).second) return j;
    }
    return none;
}

}  // namespace souk::market
