// SPDX-License-Identifier: GPL-2.0-or-later
// The Allocator's limits by class: a class takes no job after a rank (ClassLimit). Limits say who
// may enter. Who is inside already leaves when set_limits finds him beyond the limit: at once with
// the plain rules, with a horizon when what he gains elsewhere within it is worth the move. What a
// limit shuts out is taken up when it rises. So, with the plain rules, the result is still that of
// one pass over all jobs.
#include <algorithm>

#include "market/core/allocator.hpp"

namespace souk::market {

namespace {
using Wide = __int128;
}  // namespace

bool Allocator::admits(ClassKey cls, const Rank& rank) const {
    const auto at = std::lower_bound(limits_.begin(), limits_.end(), cls,
                                     [](const ClassLimit& l, ClassKey key) { return l.cls < key; });
    return at == limits_.end() || at->cls != cls || rank <= at->last;
}

Money Allocator::least_bid_at(const Machine& m) const {
    const auto at = std::lower_bound(limits_.begin(), limits_.end(), m.cls,
                                     [](const ClassLimit& l, ClassKey key) { return l.cls < key; });
    if (at == limits_.end() || at->cls != m.cls) return m.spec.reserve;
    return std::max(m.spec.reserve, Money{-std::max(at->last.first, -INT64_MAX)});
}

// Searches for process(), past the classes whose limit is above the job.
MachineOrder::Place Allocator::search_limited(uint32_t j, ClassKey below, size_t start) {
    const Job& job = jobs_[j];
    const auto fits = [&](const MachineOrder::Entry& e) { return has_place(e, j); };
    ClassKey from = 0;
    for (const ClassLimit& limit : limits_) {
        if (limit.cls >= below) break;
        if (job.rank <= limit.last) continue;
        if (limit.cls > from)
            if (const auto place = machine_order_.first(from, limit.cls, job.cpus, job.memory_mb,
                                                        job.rank, start, fits))
                return place;
        from = limit.cls + 1;
    }
    return machine_order_.first(from, below, job.cpus, job.memory_mb, job.rank, start, fits);
}

// With migration-aware rules some stay where they are although others would be there by the limits.
// Who has no place because of that takes one that is free and worth its reserve to him.
MachineOrder::Place Allocator::search_free(uint32_t j) {
    const Job& job = jobs_[j];
    return machine_order_.first(
        0, class_none, job.cpus, job.memory_mb, rank_last, 0, [&](const MachineOrder::Entry& e) {
            return is_free(e, j) && suits(e, j) && worth_reserve(machines_[e.machine], j);
        });
}

bool Allocator::worth_reserve(const Machine& m, uint32_t j) const {
    return static_cast<Wide>(jobs_[j].value.micro) * m.spec.speed >=
           static_cast<Wide>(m.spec.reserve.micro) * speed_top();
}

// gains_by_leaving() of a job with files: in the best other class, or at home.
bool Allocator::gains_with_files(uint32_t j, const Machine& m) const {
    const uint32_t h = find_machine(details_[j].files->traffic.home);
    const MovedJob job = moved(j);
    const auto stay_at = [&](ProviderKey at) { return costs_.stay(job, at, speed_top()); };
    const int64_t horizon_ms = std::max<int64_t>(1, rules().horizon.ns / 1'000'000);
    Wide here = 0, best = 0;
    for (const ClassLevel& c : levels_) {
        const auto speed = static_cast<int32_t>(speed_max - static_cast<int64_t>(c.cls >> 50));
        const Wide price = c.level * jobs_[j].cpus * horizon_ms;
        if (c.cls == m.cls)
            here = stay_at(m.key).at(speed) - price;
        else
            best = std::max(best, stay_at(ProviderKey{}).at(speed) - price);
        if (h != none && c.cls == machines_[h].cls && !is_home(j, m))
            best = std::max(best, stay_at(machines_[h].key).at(speed) - price);
    }
    return best > here && best - here >= lost_by_move(j, m);
}

// Whether what the job gains in the best other class within the horizon is worth the move (bound_at
// has the cost).
bool Allocator::gains_by_leaving(uint32_t j, const Machine& m) const {
    if (minds_files(j)) return gains_with_files(j, m);
    const auto speed_of = [](ClassKey cls) { return speed_max - static_cast<int64_t>(cls >> 50); };
    const Wide value = jobs_[j].value.micro;
    Wide here = 0, best = 0;
    for (const ClassLevel& c : levels_) {
        const Wide surplus = value * speed_of(c.cls) - c.level;
        if (c.cls == m.cls)
            here = surplus;
        else
            best = std::max(best, surplus);
    }
    const MoveCost cost =
        move_cost(bytes_of(j), details_[j].dirty_bytes_per_s, rules().link_bytes_per_s);
    const Wide cpus = jobs_[j].cpus,
               pause_ms = std::min<Wide>(cost.pause.ns / 1'000'000, 1LL << 36);
    const Wide money =
        static_cast<Wide>(cost.bytes) * rules().byte_cost_per_gb.micro / 1'000'000'000;
    const Wide lost = value * cpus * m.spec.speed * pause_ms + money * speed_top() * 3'600'000;
    return best > here && (best - here) * cpus * (rules().horizon.ns / 1'000'000) >= lost;
}

// Jobs after rank `after` and up to `last` may enter now: they are looked at, or the machines that
// have room for them.
void Allocator::let_in(ClassKey cls, const Rank& after, const Rank& last) {
    constexpr size_t few = 64;
    std::vector<uint32_t> jobs;
    if (last != rank_last)
        order_.each_after(after, [&](const JobOrder::Entry& e) {
            if (e.rank > last || jobs.size() > few) return false;
            jobs.push_back(e.job);
            return true;
        });
    if (last != rank_last && jobs.size() <= few) {
        dirty_.insert(dirty_.end(), jobs.begin(), jobs.end());
        return;
    }
    std::vector<uint32_t> machines;
    machine_order_.each_free(cls,
                             [&](const MachineOrder::Entry& e) { machines.push_back(e.machine); });
    for (const uint32_t m : machines) open(m, after);
}

void Allocator::let_go(ClassKey cls, const Rank& last) {
    std::vector<uint32_t> beyond;
    Rank bar = last;
    machine_order_.each_weaker(cls, cls + 1, bar, [&](const MachineOrder::Entry& e) {
        for (const Guest& g : machines_[e.machine].guests)
            if (g.rank > last) beyond.push_back(g.job);
    });
    int32_t tokens = tokens_;
    for (const uint32_t j : beyond) {
        if (rules().horizon.ns > 0 && !gains_by_leaving(j, machines_[jobs_[j].slot])) continue;
        if (rules().moves_max > 0 && tokens-- <= 0) {
            suppressed_ = true;
            continue;
        }
        evict(j, Cause::cheaper, none);
        dirty_.push_back(j);
    }
}

void Allocator::set_limits(std::vector<ClassLimit> limits, const Rank& last,
                           std::vector<ClassLevel> levels) {
    const std::vector<ClassLimit> before = std::exchange(limits_, std::move(limits));
    last_admitted_ = last;
    levels_ = std::move(levels);
    if (before != limits_) ++version_;
    auto now = limits_.begin();
    for (const ClassLimit& old : before) {
        while (now != limits_.end() && now->cls < old.cls) ++now;
        const bool limited = now != limits_.end() && now->cls == old.cls;
        const Rank& raised = limited ? now->last : rank_last;
        if (raised > old.last) let_in(old.cls, old.last, raised);
    }
    for (const ClassLimit& limit : limits_) let_go(limit.cls, limit.last);
}

void Allocator::lift_limits() {
    limits_.clear();
    levels_.clear();
    last_admitted_ = rank_last;
    all_dirty_ = true;
    ++version_;
}

}  // namespace souk::market
