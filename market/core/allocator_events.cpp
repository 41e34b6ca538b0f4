// SPDX-License-Identifier: GPL-2.0-or-later
// The Allocator's other half: what happened to jobs and providers, and the changes that a solve made of it.
#include <algorithm>
#include <utility>

#include "kernel/base/check.hpp"
#include "market/core/allocator.hpp"

namespace souk::market {

Rank Allocator::rank_of(const Job& j) const {
    if (assigned_) return {last_turn_, j.arrival.ns, j.key.n};
    return Rank::of(j.value, j.arrival, j.key);
}

void Allocator::fill(Job& j, JobKey key, const JobSpec& spec) {
    j.key = key;
    j.value = spec.value;
    j.memory_mb = spec.memory_mb;
    j.arrival = spec.arrival;
    j.move_bytes = spec.move_bytes;
    j.dirty_bytes_per_s = spec.dirty_bytes_per_s;
    j.place = spec.place;
    j.barred = spec.barred.empty() ? nullptr : std::make_unique<std::vector<ProviderKey>>(spec.barred);
    j.user = spec.user;
    j.cpus = spec.cpus;
    j.state = spec.state;
    j.pin = spec.pin;
    j.rank = rank_of(j);
}

void Allocator::enter_order(uint32_t j) {
    Job& job = jobs_[j];
    job.competing = job.staged = true;
    staged_.push_back(j);
    dirty_.push_back(j);
}

void Allocator::leave_order(uint32_t j) {
    Job& job = jobs_[j];
    if (!job.competing) return;
    if (job.staged) flush();
    order_.erase(j, job.rank);
    job.competing = false;
}

// Brings new jobs into the order: one by one, or all at once by sorting where they are many.
void Allocator::flush() {
    auto entry_of = [&](uint32_t j) {
        Job& job = jobs_[j];
        job.staged = false;
        return JobOrder::Entry{job.rank, job.bound, job.memory_mb, j, job.cpus};
    };
    if (staged_.size() <= 64 || staged_.size() * 8 <= order_.size()) {
        for (const uint32_t j : staged_) order_.insert(entry_of(j));
    } else {
        std::vector<JobOrder::Entry> all;
        all.reserve(order_.size() + staged_.size());
        order_.each([&](const JobOrder::Entry& e) {
            all.push_back(e);
            return true;
        });
        const auto middle = static_cast<ptrdiff_t>(all.size());
        for (const uint32_t j : staged_) all.push_back(entry_of(j));
        auto before = [](const JobOrder::Entry& a, const JobOrder::Entry& b) { return a.rank < b.rank; };
        std::sort(all.begin() + middle, all.end(), before);
        std::inplace_merge(all.begin(), all.begin() + middle, all.end(), before);
        order_.rebuild(all);
    }
    staged_.clear();
}

// A machine whose guests need more than it offers lets the weakest go.
void Allocator::trim(uint32_t m) {
    Machine& mc = machines_[m];
    while ((mc.free_cpus < 0 || mc.free_mb < 0) && !mc.guests.empty() && !mc.guests.back().rank.is_top()) {
        const uint32_t j = mc.guests.back().job;
        evict(j, Cause::no_room, none);
        dirty_.push_back(j);
    }
}

// Enters a job with the attributes it has: on its machine if it may be there, and into the order unless pinned.
void Allocator::attach(uint32_t j) {
    Job& job = jobs_[j];
    job.at = job.state == JobState::running ? find_machine(job.place) : none;
    job.bound = class_none;
    job.cause = Cause::placed;
    touch(j);
    if (job.pin == Pin::frozen) {
        job.cause = Cause::pinned;
        return;
    }
    const uint32_t m = job.pin == Pin::stay ? find_machine(job.place) : job.at;
    if (job.pin == Pin::stay) {
        if (m != none) seat(j, m);
    } else {
        job.held = job.stay_until > now_ && m != none && eligible(machines_[m], job);
        if (!job.held) enter_order(j);
        if (m != none && eligible(machines_[m], job)) seat(j, m);
        else if (m != none) {
            const ProviderSpec& p = machines_[m].spec;
            job.cause = !p.accepting ? Cause::provider_gone : p.reserve > job.value ? Cause::below_reserve : Cause::barred;
        }
    }
    if (m != none) trim(m);
    if (orphan(job)) orphans_.push_back(j);
}

// Told to be on a provider that nobody has told of (any more).
bool Allocator::orphan(const Job& j) const {
    return j.key.n != 0 && j.slot == none && j.at == none && (j.state == JobState::running || j.pin == Pin::stay) &&
           j.pin != Pin::frozen;
}

void Allocator::detach(uint32_t j) {
    Job& job = jobs_[j];
    leave_order(j);
    if (job.slot != none) unseat(j);
    job.held = false;
}

void Allocator::add_job(JobKey key, const JobSpec& spec) {
    uint32_t j = static_cast<uint32_t>(jobs_.size());
    if (free_jobs_.empty()) {
        jobs_.emplace_back();
    } else {
        j = free_jobs_.back();
        free_jobs_.pop_back();
    }
    job_index_.insert(key.n, j);
    const bool touched = jobs_[j].touched;  // the list of touched jobs may still name this index
    jobs_[j] = Job{};
    jobs_[j].touched = touched;
    fill(jobs_[j], key, spec);
    attach(j);
    ++version_;
}

void Allocator::change_job(uint32_t j, const JobSpec& spec) {
    detach(j);
    Job& job = jobs_[j];
    if (spec.state != JobState::running || spec.place != job.place) job.stay_until = Nanos{INT64_MIN};
    fill(job, job.key, spec);
    attach(j);
    ++version_;
}

void Allocator::change_value(uint32_t j, Money value) {
    Job& job = jobs_[j];
    ++version_;
    const uint32_t m = job.slot;
    if (m != none && !job.held && job.pin == Pin::free && machines_[m].spec.reserve > value) {
        evict(j, Cause::below_reserve, none);
    }
    detach(j);
    job.value = value;
    job.rank = rank_of(job);
    if (job.pin == Pin::free) {
        job.held = m != none && job.stay_until > now_ && eligible(machines_[m], job);
        if (!job.held) enter_order(j);
    }
    const bool seated = m != none && (job.pin == Pin::stay || eligible(machines_[m], job));
    if (seated) seat(j, m);
    else job.bound = class_none;
}

void Allocator::remove_job(uint32_t j) {
    detach(j);
    job_index_.erase(jobs_[j].key.n);
    jobs_[j].key = {};
    jobs_[j].at = none;
    free_jobs_.push_back(j);
    ++version_;
}

void Allocator::add_provider(ProviderKey key, const ProviderSpec& spec) {
    uint32_t m = static_cast<uint32_t>(machines_.size());
    if (free_machines_.empty()) {
        machines_.emplace_back();
    } else {
        m = free_machines_.back();
        free_machines_.pop_back();
        machines_[m] = Machine{};
    }
    machine_index_.insert(key.n, m);
    Machine& mc = machines_[m];
    mc.key = key;
    mc.spec = spec;
    mc.free_cpus = spec.cpus;
    mc.free_mb = spec.memory_mb;
    mc.cls = spec.accepting ? class_of(spec.speed, spec.reserve) : class_none;
    if (spec.accepting) machine_order_.insert({mc.cls, key.n, Rank::top(), mc.free_mb, mc.free_cpus, m});
    open(m, Rank::top());
    ++version_;
    for (const uint32_t j : std::exchange(orphans_, {})) {
        const Job& job = jobs_[j];
        if (!orphan(job)) continue;
        if (job.place != key) {
            orphans_.push_back(j);
            continue;
        }
        leave_order(j);
        attach(j);
    }
}

void Allocator::unhold(uint32_t j) {
    Job& job = jobs_[j];
    const uint32_t m = job.slot;
    unseat(j);
    job.held = false;
    job.stay_until = Nanos{INT64_MIN};
    enter_order(j);
    seat(j, m);
}

void Allocator::hold(uint32_t j) {
    Job& job = jobs_[j];
    const uint32_t m = job.slot;
    leave_order(j);
    unseat(j);
    job.held = true;
    seat(j, m);
}

// Every guest goes, pinned ones only if the machine itself goes.
void Allocator::expel(uint32_t m, bool pinned_too, Cause cause) {
    const std::vector<Guest> guests = machines_[m].guests;
    for (const Guest& g : guests) {
        Job& job = jobs_[g.job];
        if (job.pin == Pin::stay && !pinned_too) continue;
        if (job.held) unhold(g.job);
        if (job.slot == none) continue;
        if (job.pin == Pin::stay) {
            unseat(g.job);
        } else {
            evict(g.job, cause, none);
            dirty_.push_back(g.job);
        }
    }
}

void Allocator::change_provider(uint32_t m, const ProviderSpec& spec) {
    Machine& mc = machines_[m];
    ++version_;
    if (!spec.accepting) expel(m, false, Cause::provider_gone);
    const std::vector<Guest> guests = mc.guests;
    const bool speed_changed = spec.speed != mc.spec.speed;
    if (mc.spec.accepting) machine_order_.erase(m);
    mc.free_cpus += spec.cpus - mc.spec.cpus;
    mc.free_mb += spec.memory_mb - mc.spec.memory_mb;
    mc.spec = spec;
    mc.cls = spec.accepting ? class_of(spec.speed, spec.reserve) : class_none;
    if (spec.accepting) machine_order_.insert({mc.cls, mc.key.n, Rank::top(), mc.free_mb, mc.free_cpus, m});
    refresh(m);
    for (const Guest& g : guests) {
        Job& job = jobs_[g.job];
        if (job.pin == Pin::stay) continue;
        if (job.value < spec.reserve) {
            if (job.held) unhold(g.job);
            if (job.slot != none) evict(g.job, Cause::below_reserve, none);
        } else if (!job.held) {
            set_bound(job, bound_at(job, mc));
        }
        if (speed_changed) touch(g.job);
        dirty_.push_back(g.job);
    }
    while (mc.free_cpus < 0 || mc.free_mb < 0) {  // min_stay does not hold on a machine that shrinks
        trim(m);
        if (mc.free_cpus >= 0 && mc.free_mb >= 0) break;
        auto held = std::find_if(mc.guests.begin(), mc.guests.end(), [&](const Guest& g) { return jobs_[g.job].held; });
        if (held == mc.guests.end()) break;
        unhold(held->job);
    }
    open(m, Rank::top());
}

void Allocator::remove_provider(uint32_t m) {
    Machine& mc = machines_[m];
    expel(m, true, Cause::provider_gone);
    for (const uint32_t j : touched_)
        if (jobs_[j].at == m) {
            jobs_[j].at = none;
            jobs_[j].cause = Cause::provider_gone;
            if (orphan(jobs_[j])) orphans_.push_back(j);
        }
    if (mc.spec.accepting) machine_order_.erase(m);
    machine_index_.erase(mc.key.n);
    mc.open = false;
    mc.key = {};
    free_machines_.push_back(m);
    ++version_;
}

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
    auto group = [](const Change& c) { return c.kind == ChangeKind::freeze ? 0 : c.kind == ChangeKind::move ? 1 : 2; };
    std::sort(changes_.begin(), changes_.end(), [&](const Change& a, const Change& b) {
        if (group(a) != group(b)) return group(a) < group(b);
        return jobs_[find_job(a.job)].rank < jobs_[find_job(b.job)].rank;
    });
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
