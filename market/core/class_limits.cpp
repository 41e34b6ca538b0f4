// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/class_limits.hpp"

#include <utility>

namespace souk::market {

namespace {
using LevelWide = __int128;

int64_t speed_of_class(ClassKey cls) { return speed_max - static_cast<int64_t>(cls >> 50); }
}  // namespace

Money ClassLimits::least_bid_at(const Occupancy::Machine& m) const {
    const auto at = find(m.cls);
    if (at == limits_.end() || at->cls != m.cls) return m.spec.reserve;
    return std::max(m.spec.reserve, Money{-std::max(at->last.first, -INT64_MAX)});
}

// The same for a job with files, which may also gain at home.
bool ClassLimits::worth_leaving_files(const Seating& seats, uint32_t j,
                                      const Occupancy::Machine& m) const {
    const Occupancy& all = seats.occupancy();
    const uint32_t h = all.find_machine(all.details(j).files->traffic.home);
    const MovedJob job = seats.moved(j);
    const auto stay_at = [&](ProviderKey at) {
        return seats.costs().stay(job, at, all.speed_top());
    };
    const int64_t horizon_ms = std::max<int64_t>(1, seats.rules().horizon.ns / 1'000'000);
    LevelWide here = 0, best = 0;
    for (const ClassLevel& c : levels_) {
        const auto speed = static_cast<int32_t>(speed_of_class(c.cls));
        const LevelWide price = c.level * job.cpus * horizon_ms;
        if (c.cls == m.cls)
            here = stay_at(m.key).at(speed) - price;
        else
            best = std::max(best, stay_at(ProviderKey{}).at(speed) - price);
        if (h != Occupancy::none && c.cls == all.machines()[h].cls && !seats.is_home(j, m))
            best = std::max(best, stay_at(all.machines()[h].key).at(speed) - price);
    }
    return best > here && best - here >= seats.lost_by_move(j, m);
}

bool ClassLimits::worth_leaving(const Seating& seats, uint32_t j,
                                const Occupancy::Machine& m) const {
    if (seats.minds_files(j)) return worth_leaving_files(seats, j, m);
    const Rules& rules = seats.rules();
    const MovedJob job = seats.moved(j);
    const LevelWide value = job.value.micro;
    LevelWide here = 0, best = 0;
    for (const ClassLevel& c : levels_) {
        const LevelWide surplus = value * speed_of_class(c.cls) - c.level;
        if (c.cls == m.cls)
            here = surplus;
        else
            best = std::max(best, surplus);
    }
    const MoveCost cost = move_cost(job.bytes, job.dirty_bytes_per_s, rules.link_bytes_per_s);
    const LevelWide cpus = job.cpus,
                    pause_ms = std::min<LevelWide>(cost.pause.ns / 1'000'000, 1LL << 36);
    const LevelWide money =
        static_cast<LevelWide>(cost.bytes) * rules.byte_cost_per_gb.micro / 1'000'000'000;
    const LevelWide lost =
        value * cpus * m.spec.speed * pause_ms + money * seats.occupancy().speed_top() * 3'600'000;
    return best > here && (best - here) * cpus * (rules.horizon.ns / 1'000'000) >= lost;
}

std::vector<ClassLimits::Raise> ClassLimits::set(std::vector<ClassLimit> limits, const Rank& last,
                                                 std::vector<ClassLevel> levels) {
    const std::vector<ClassLimit> before = std::exchange(limits_, std::move(limits));
    last_ = last;
    levels_ = std::move(levels);
    std::vector<Raise> raised;
    auto now = limits_.begin();
    for (const ClassLimit& old : before) {
        while (now != limits_.end() && now->cls < old.cls) ++now;
        const bool limited = now != limits_.end() && now->cls == old.cls;
        const Rank& limit = limited ? now->last : rank_last;
        if (limit > old.last) raised.push_back({old.cls, old.last, limit});
    }
    return raised;
}

}  // namespace souk::market
