// SPDX-License-Identifier: GPL-2.0-or-later
// The Allocator's last third: rules and rank orders, what time alone changes, and the changes that a solve made.
#include <algorithm>
#include <utility>

#include "market/core/allocator.hpp"

namespace souk::market {

void Allocator::rebound_all() {
    for (Job& j : jobs_)
        if (j.key.n != 0 && j.slot != none && j.competing) set_bound(j, bound_at(j, machines_[j.slot]));
}

void Allocator::set_rules(const Rules& rules) {
    flush();
    rules_ = rules;
    rebound_all();
    all_dirty_ = true;
    ++version_;
}

// What time alone has changed: stays that are over, moves that have left the window.
void Allocator::begin(Nanos now) {
    now_ = now;
    changes_.clear();
    machine_order_.begin_pass();
    while (!stays_.empty() && stays_.front().at <= now) {
        const uint32_t j = find_job(stays_.front().job);
        stays_.pop_front();
        if (j != none && jobs_[j].held && jobs_[j].stay_until <= now) unhold(j), ++version_;
    }
    flush();
    while (!moves_.empty() && moves_.front() + rules_.moves_window <= now) moves_.pop_front();
    tokens_ = rules_.moves_max - static_cast<int32_t>(std::min<size_t>(moves_.size(), INT32_MAX));
    if (suppressed_ && tokens_ > 0) {
        suppressed_ = false;
        all_dirty_ = true;
    }
    if (fastest_ != machine_order_.fastest()) {
        fastest_ = machine_order_.fastest();
        if (rules_.horizon.ns > 0) {  // gains are shares of the fastest speed
            rebound_all();
            all_dirty_ = true;
        }
    }
}

// Freezes, moves, thaws and starts; each in rank order, which is how a pass finds them.
void Allocator::sort_changes() {
    struct Item {
        int group;
        Rank rank;
        uint32_t change;
    };
    std::vector<Item> items;
    items.reserve(changes_.size());
    for (const Change& c : changes_) {
        const int group = c.kind == ChangeKind::freeze ? 0 : c.kind == ChangeKind::move ? 1 : 2;
        items.push_back({group, jobs_[find_job(c.job)].rank, static_cast<uint32_t>(items.size())});
    }
    auto before = [](const Item& a, const Item& b) { return a.group != b.group ? a.group < b.group : a.rank < b.rank; };
    if (std::is_sorted(items.begin(), items.end(), before)) return;
    std::sort(items.begin(), items.end(), before);
    std::vector<Change> sorted;
    sorted.reserve(items.size());
    for (const Item& i : items) sorted.push_back(changes_[i.change]);
    changes_.swap(sorted);
}

// From the plan to changes; the plan becomes the state.
void Allocator::emit(Nanos now) {
    for (size_t i = 0; i < touched_.size(); ++i) {
        const uint32_t j = touched_[i];
        Job& job = jobs_[j];
        job.touched = false;
        const bool voluntary = std::exchange(job.voluntary, false);
        const bool running = job.state == JobState::running;
        if (job.key.n == 0 || (job.slot == none && (!running || job.pin == Pin::stay))) continue;
        const ProviderKey to = job.slot == none ? ProviderKey{} : machines_[job.slot].key;
        if (running && job.place == to) continue;
        Change c{job.key, ChangeKind::move, job.place, to, job.cause, {}, {}};
        if (job.slot == none) {
            c.kind = ChangeKind::freeze;
        } else if (!running) {
            c.kind = job.state == JobState::frozen ? ChangeKind::thaw : ChangeKind::start;
            if (c.kind == ChangeKind::start) c.from = {};
            c.cause = job.pin == Pin::stay ? Cause::pinned : job.cause == Cause::adopted ? job.cause : Cause::placed;
        }
        if (c.kind == ChangeKind::move && voluntary) c.cause = Cause::faster;
        if (c.cause == Cause::displaced || c.cause == Cause::share) {
            c.other = job.by;
            c.other_value = job.by_value;
        }
        if (c.kind == ChangeKind::move && rules_.moves_max > 0) moves_.push_back(now);
        changes_.push_back(c);
        job.at = job.slot;
        job.state = job.slot == none ? JobState::frozen : JobState::running;
        if (job.slot != none) job.place = to;
    }
    touched_.clear();
    dirty_.clear();
    all_dirty_ = false;
    ++version_;
    std::erase_if(orphans_, [&](uint32_t j) { return !orphan(jobs_[j]); });
    sort_changes();
    if (rules_.min_stay.ns == 0) return;
    for (const Change& c : changes_) {
        if (c.kind == ChangeKind::freeze) continue;
        const uint32_t j = find_job(c.job);
        if (jobs_[j].pin == Pin::free && !jobs_[j].held) {
            jobs_[j].stay_until = now + rules_.min_stay;
            stays_.push_back({jobs_[j].stay_until, c.job});
            hold(j);
        }
    }
    for (const uint32_t j : touched_) jobs_[j].touched = false;
    touched_.clear();
}

Nanos Allocator::next_wake() const {
    Nanos wake = Nanos::never();
    for (const Expiry& e : stays_) {
        const uint32_t j = find_job(e.job);
        if (j == none || !jobs_[j].held) continue;
        wake = e.at;
        break;
    }
    if (suppressed_ && !moves_.empty()) wake = std::min(wake, moves_.front() + rules_.moves_window);
    return wake;
}

// The jobs' new ranks, wherever the old ones were kept.
void Allocator::rerank(std::vector<JobOrder::Entry> entries) {
    for (uint32_t m = 0; m < machines_.size(); ++m) {
        Machine& mc = machines_[m];
        if (mc.key.n == 0) continue;
        for (Guest& g : mc.guests)
            if (!g.rank.is_top()) g.rank = jobs_[g.job].rank;
        std::sort(mc.guests.begin(), mc.guests.end(), [](const Guest& a, const Guest& b) { return a.rank < b.rank; });
        refresh(m);
    }
    order_.rebuild(entries);
    rebound_all();
}

void Allocator::solve_in_order(const std::vector<uint32_t>& jobs, Nanos now) {
    flush();
    assigned_ = true;
    last_turn_ = INT64_MAX;
    std::vector<JobOrder::Entry> entries;
    entries.reserve(jobs.size());
    int64_t turn = 0;
    for (const uint32_t j : jobs) {
        Job& job = jobs_[j];
        job.rank = {turn++, job.arrival.ns, job.key.n};
        entries.push_back({job.rank, job.bound, job.memory_mb, j, job.cpus});
    }
    rerank(std::move(entries));
    solve_all(now);
}

void Allocator::rank_by_value() {
    if (!assigned_) return;
    flush();
    assigned_ = false;
    std::vector<uint32_t> competing;
    order_.each([&](const JobOrder::Entry& e) {
        competing.push_back(e.job);
        return true;
    });
    std::sort(competing.begin(), competing.end(),
              [&](uint32_t a, uint32_t b) { return rank_of(jobs_[a]) < rank_of(jobs_[b]); });
    for (Job& j : jobs_) j.rank = rank_of(j);
    std::vector<JobOrder::Entry> entries;
    for (const uint32_t j : competing)
        entries.push_back({jobs_[j].rank, jobs_[j].bound, jobs_[j].memory_mb, j, jobs_[j].cpus});
    rerank(std::move(entries));
    all_dirty_ = true;
    ++version_;
}

void Allocator::adopt(const std::vector<uint32_t>& slots, Nanos now) {
    begin(now);
    std::vector<uint32_t> moving;
    for (uint32_t j = 0; j < jobs_.size(); ++j) {
        Job& job = jobs_[j];
        if (job.key.n == 0 || job.pin != Pin::free || job.slot == slots[j]) continue;
        if (job.held) unhold(j);
        moving.push_back(j);
    }
    flush();
    in_pass_ = true;  // nothing is to be taken up
    for (const uint32_t j : moving)
        if (jobs_[j].slot != none) unseat(j);
    in_pass_ = false;
    for (const uint32_t j : moving) {
        Job& job = jobs_[j];
        job.cause = Cause::adopted;
        touch(j);
        set_bound(job, class_none);
        if (slots[j] != none) seat(j, slots[j]);
    }
    for (Machine& m : machines_) m.open = false;
    queue_ = {};
    open_ = {};
    emit(now);
    all_dirty_ = true;
}

}  // namespace souk::market
