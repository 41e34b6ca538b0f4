// SPDX-License-Identifier: GPL-2.0-or-later
// The Allocator's second third: what happened to jobs and providers.
#include <algorithm>
#include <utility>

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

// New jobs by rank: a radix sort by the first field, eight bits a pass (passes in which all agree are skipped), then
// the few of equal value by the rest.
void Allocator::sort_staged() {
    struct Item {
        uint64_t first;
        uint32_t job;
    };
    std::vector<Item> items(staged_.size()), other(staged_.size());
    uint64_t all_or = 0, all_and = UINT64_MAX;
    for (size_t i = 0; i < items.size(); ++i) {
        items[i] = {static_cast<uint64_t>(jobs_[staged_[i]].rank.first) ^ (1ULL << 63), staged_[i]};
        all_or |= items[i].first;
        all_and &= items[i].first;
    }
    for (unsigned shift = 0; shift < 64; shift += 8) {
        if (((all_or ^ all_and) >> shift & 0xff) == 0) continue;
        size_t begin[256] = {};
        for (const Item& x : items) ++begin[x.first >> shift & 0xff];
        size_t sum = 0;
        for (size_t& n : begin) sum += std::exchange(n, sum);
        for (const Item& x : items) other[begin[x.first >> shift & 0xff]++] = x;
        items.swap(other);
    }
    for (size_t i = 0, end; i < items.size(); i = end) {
        for (end = i + 1; end < items.size() && items[end].first == items[i].first;) ++end;
        if (end - i > 1)
            std::sort(items.begin() + static_cast<ptrdiff_t>(i), items.begin() + static_cast<ptrdiff_t>(end),
                      [&](const Item& x, const Item& y) { return jobs_[x.job].rank < jobs_[y.job].rank; });
    }
    for (size_t i = 0; i < items.size(); ++i) staged_[i] = items[i].job;
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
        sort_staged();
        std::vector<JobOrder::Entry> all;
        all.reserve(order_.size() + staged_.size());
        size_t next = 0;
        order_.each([&](const JobOrder::Entry& e) {
            for (; next < staged_.size() && jobs_[staged_[next]].rank < e.rank; ++next)
                all.push_back(entry_of(staged_[next]));
            all.push_back(e);
            return true;
        });
        for (; next < staged_.size(); ++next) all.push_back(entry_of(staged_[next]));
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
    if (job.state == JobState::running) touch(j);
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
        if (m != none && eligible(machines_[m], job))
            seat(j, m);
        else if (m != none) {
            const ProviderSpec& p = machines_[m].spec;
            job.cause = !p.accepting            ? Cause::provider_gone
                        : p.reserve > job.value ? Cause::below_reserve
                                                : Cause::barred;
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
    if (seated)
        seat(j, m);
    else
        job.bound = class_none;
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

}  // namespace souk::market
