// SPDX-License-Identifier: GPL-2.0-or-later
// The Allocator's second third: what happened to jobs and providers.
#include <algorithm>
#include <utility>

#include "market/core/allocator.hpp"
#include "market/core/radix_sort.hpp"

namespace souk::market {

Rank Allocator::rank_of(uint32_t j) const {
    const Job& job = jobs_[j];
    if (assigned_) return {last_turn_, job.rank.second, job.rank.key};
    return Rank::of(job.value, job.arrival(), job.key(), weight_of(j));
}

void Allocator::weigh(uint32_t j, int32_t weight) {
    weighed_ -= details_[j].weight != weight_plain;
    details_[j].weight = weight;
    weighed_ += weight != weight_plain;
}

JobOrder::Entry Allocator::entry_of(uint32_t j) const {
    const Job& job = jobs_[j];
    return {job.rank, job.bound, job.memory_mb, j, job.cpus};
}

void Allocator::fill(uint32_t j, JobKey key, const JobDemand& spec) {
    Job& job = jobs_[j];
    job.value = spec.value;
    job.memory_mb = spec.memory_mb;
    job.cpus = spec.cpus;
    job.state = spec.state;
    job.pin = spec.pin;
    details_[j].only = job.component ? spec.only : ProviderKey{};
    named_jobs_ -= job.named;
    job.named = spec.asks_named();
    named_jobs_ += job.named;
    job.bars = !spec.barred.empty() || details_[j].only.n != 0 || job.named;
    job.files = spec.files.any() && !job.component;
    weigh(j, spec.weight);
    job.rank = {0, spec.arrival.ns, key.n};
    job.rank = rank_of(j);
    JobDetails& d = details_[j];
    d.place = spec.place;
    d.move_bytes = spec.move_bytes;
    d.dirty_bytes_per_s = spec.dirty_bytes_per_s;
    d.barred = spec.barred.empty() ? Rare<std::vector<ProviderKey>>() : spec.barred;
    if (d.barred) std::sort(d.barred->begin(), d.barred->end());
    d.files = job.files ? Rare<Files>({spec.files, class_none}) : Rare<Files>();
    d.named = job.named ? Rare<Named>({spec.named, spec.licences, spec.named_kept}) : Rare<Named>();
    d.user = spec.user;
}

void Allocator::enter_order(uint32_t j) {
    Job& job = jobs_[j];
    job.competing = job.staged = true;
    competing_with_bars_ += job.bars;
    if (job.files) natives_[details_[j].files->traffic.home.n].insert({job.rank, j});
    if (job.named) want_licences(j, true);
    staged_.push_back(j);
    dirty_.push_back(j);
}

void Allocator::leave_order(uint32_t j) {
    Job& job = jobs_[j];
    if (!job.competing) return;
    if (job.staged) flush();
    order_.erase(job.rank);
    job.competing = false;
    competing_with_bars_ -= job.bars;
    if (job.named) want_licences(j, false);
    if (!job.files) return;
    const auto natives = natives_.find(details_[j].files->traffic.home.n);
    natives->second.erase({job.rank, j});
    if (natives->second.empty()) natives_.erase(natives);
}

// Brings new jobs into the order: one by one, or all at once by sorting where they are many.
void Allocator::flush() {
    if (staged_.size() <= 64 || staged_.size() * 8 <= order_.size()) {
        for (const uint32_t j : staged_) {
            jobs_[j].staged = false;
            order_.insert(entry_of(j));
        }
    } else {
        radix_sort(
            staged_, [&](uint32_t j) { return jobs_[j].rank.first; },
            [&](uint32_t a, uint32_t b) { return jobs_[a].rank < jobs_[b].rank; });
        JobOrder all;
        size_t next = 0;
        auto append_next = [&] {
            if (next + 16 < staged_.size()) __builtin_prefetch(&jobs_[staged_[next + 16]], 1);
            const uint32_t j = staged_[next++];
            jobs_[j].staged = false;
            all.append(entry_of(j));
        };
        order_.each([&](const JobOrder::Entry& e) {
            while (next < staged_.size() && jobs_[staged_[next]].rank < e.rank) append_next();
            all.append(e);
            return true;
        });
        while (next < staged_.size()) append_next();
        order_ = std::move(all);
    }
    staged_.clear();
}

// A machine whose guests need more than it offers lets the weakest go.
void Allocator::trim(uint32_t m) {
    Machine& mc = machines_[m];
    const auto goes = [&](uint32_t j) {
        evict(j, Cause::no_room, none);
        dirty_.push_back(j);
    };
    while ((mc.free_cpus < 0 || mc.free_mb < 0) && !mc.guests.empty() &&
           !mc.guests.back().rank.is_top())
        goes(mc.guests.back().job);
    if (named_jobs_ == 0) return;
    for (uint32_t j = named_beyond(mc); j != none; j = named_beyond(mc)) goes(j);
    for (uint32_t j = licences_.beyond(); j != none; j = licences_.beyond()) goes(j);
}

// Enters a job with the attributes it has: on its machine if it may be there, and into the order
// unless pinned.
void Allocator::attach(uint32_t j) {
    Job& job = jobs_[j];
    const bool placed = job.state == JobState::running || job.pin == Pin::stay;
    const uint32_t named = placed ? find_machine(details_[j].place) : none;
    job.at = job.state == JobState::running ? named : none;
    job.bound = class_none;
    job.cause = Cause::placed;
    if (job.state == JobState::running) touch(j);
    if (job.pin == Pin::frozen) {
        job.cause = Cause::pinned;
        if (job.component) dirty_.push_back(j);
        return;
    }
    const uint32_t m = job.pin == Pin::stay ? named : job.at;
    if (job.pin == Pin::stay) {
        if (m != none) seat(j, m);
    } else {
        job.held = details_[j].stay_until > now_ && m != none && eligible(machines_[m], j);
        if (!job.held) enter_order(j);
        if (m != none && eligible(machines_[m], j))
            seat(j, m);
        else if (m != none) {
            job.cause = !machines_[m].spec.accepting              ? Cause::provider_gone
                        : reserve_at(machines_[m], j) > job.value ? Cause::below_reserve
                                                                  : Cause::barred;
        }
    }
    if (m != none) trim(m);
    if (orphan(j)) orphans_.push_back(j);
    if (job.component) dirty_.push_back(j);
}

// Told to be on a provider that nobody has told of (any more).
bool Allocator::orphan(uint32_t j) const {
    const Job& job = jobs_[j];
    return job.key().n != 0 && job.slot == none && job.at == none && job.pin != Pin::frozen &&
           (job.state == JobState::running || job.pin == Pin::stay);
}

void Allocator::detach(uint32_t j) {
    Job& job = jobs_[j];
    leave_order(j);
    if (job.slot != none) unseat(j);
    job.held = false;
}

uint32_t Allocator::new_job() {
    if (free_jobs_.empty()) {
        jobs_.add();
        details_.add();
        return static_cast<uint32_t>(jobs_.size() - 1);
    }
    const uint32_t j = free_jobs_.back();
    free_jobs_.pop_back();
    // the list of touched jobs may still name this index
    const bool touched = jobs_[j].touched;
    jobs_[j] = Job{};
    jobs_[j].touched = touched;
    details_[j] = JobDetails{};
    return j;
}

void Allocator::enter(uint32_t j, JobKey key, const JobDemand& spec) {
    job_index_.insert(key.n, j);
    fill(j, key, spec);
    attach(j);
    ++version_;
}

void Allocator::add_job(JobKey key, const JobDemand& spec) { enter(new_job(), key, spec); }

void Allocator::change_job(uint32_t j, const JobDemand& spec) {
    detach(j);
    if (spec.state != JobState::running || spec.place != place_of(j))
        details_[j].stay_until = Nanos{INT64_MIN};
    fill(j, jobs_[j].key(), spec);
    attach(j);
    ++version_;
}

void Allocator::change_value(uint32_t j, Money value, int32_t weight) {
    Job& job = jobs_[j];
    ++version_;
    if (job.component) return change_gang_value(gang_of(j), value, weight);
    const uint32_t m = job.slot;
    if (m != none && !job.held && job.pin == Pin::free && reserve_at(machines_[m], j) > value) {
        evict(j, Cause::below_reserve, none);
    }
    detach(j);
    job.value = value;
    weigh(j, weight);
    job.rank = rank_of(j);
    if (job.pin == Pin::free) {
        job.held = m != none && details_[j].stay_until > now_ && eligible(machines_[m], j);
        if (!job.held) enter_order(j);
    }
    const bool seated = m != none && (job.pin == Pin::stay || eligible(machines_[m], j));
    if (seated)
        seat(j, m);
    else
        job.bound = class_none;
}

void Allocator::remove_job(uint32_t j) {
    detach(j);
    if (jobs_[j].component) leave_gang(j);
    job_index_.erase(jobs_[j].rank.key);
    weigh(j, weight_plain);
    named_jobs_ -= jobs_[j].named;
    jobs_[j].named = false;
    jobs_[j].rank.key = 0;
    jobs_[j].at = none;
    free_jobs_.push_back(j);
    ++version_;
}

void Allocator::add_provider(ProviderKey key, const ProviderSpec& spec) {
    uint32_t m = static_cast<uint32_t>(machines_.size());
    if (free_machines_.empty()) {
        machines_.add();
    } else {
        m = free_machines_.back();
        free_machines_.pop_back();
        machines_[m] = Machine{};
    }
    machine_index_.insert(key.n, m);
    ++room_version_;
    Machine& mc = machines_[m];
    mc.key = key;
    mc.spec = spec;
    mc.free_cpus = spec.cpus;
    mc.free_mb = spec.memory_mb;
    mc.cls = spec.accepting ? class_of(spec.speed, spec.reserve) : class_none;
    if (spec.accepting)
        machine_order_.insert({mc.cls, key.n, Rank::top(), mc.free_mb, mc.free_cpus, m});
    open(m, Rank::top());
    ++version_;
    for (const uint32_t j : std::exchange(orphans_, {})) {
        if (!orphan(j)) continue;
        if (details_[j].place != key) {
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
    details_[j].stay_until = Nanos{INT64_MIN};
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
            if (job.component) dirty_.push_back(g.job);  // its siblings do not run without it
        } else {
            evict(g.job, cause, none);
            dirty_.push_back(g.job);
        }
    }
}

void Allocator::change_provider(uint32_t m, const ProviderSpec& spec) {
    Machine& mc = machines_[m];
    ++version_;
    ++room_version_;
    if (!spec.accepting) expel(m, false, Cause::provider_gone);
    const std::vector<Guest> guests = mc.guests;
    const bool speed_changed = spec.speed != mc.spec.speed;
    const bool network_changed = spec.network != mc.spec.network ||
                                 spec.trip_us != mc.spec.trip_us || spec.mbit != mc.spec.mbit;
    if (mc.spec.accepting) machine_order_.erase({mc.cls, mc.key.n});
    mc.free_cpus += spec.cpus - mc.spec.cpus;
    mc.free_mb += spec.memory_mb - mc.spec.memory_mb;
    mc.spec = spec;
    mc.cls = spec.accepting ? class_of(spec.speed, spec.reserve) : class_none;
    if (spec.accepting)
        machine_order_.insert({mc.cls, mc.key.n, Rank::top(), mc.free_mb, mc.free_cpus, m});
    refresh(m);
    for (const Guest& g : guests) {
        Job& job = jobs_[g.job];
        if (job.pin == Pin::stay) {
            if (job.component) dirty_.push_back(g.job);  // a bound for its siblings' speed
            continue;
        }
        if (job.value < spec.reserve || (job.named && !eligible(mc, g.job))) {
            if (job.held) unhold(g.job);
            if (job.slot != none) evict(g.job, Cause::below_reserve, none);
        } else if (!job.held) {
            look_from(g.job, mc);
        }
        if (speed_changed) touch(g.job);
        dirty_.push_back(g.job);
    }
    // min_stay does not hold on a machine that shrinks
    for (trim(m);; trim(m)) {
        const bool crowded = mc.free_cpus < 0 || mc.free_mb < 0;
        auto held = std::find_if(mc.guests.begin(), mc.guests.end(), [&](const Guest& g) {
            return jobs_[g.job].held && (crowded || holds_too_much(mc, g.job));
        });
        if (held == mc.guests.end()) break;
        unhold(held->job);
    }
    open(m, Rank::top());
    if (network_changed) reconsider_near();
}

void Allocator::remove_provider(uint32_t m) {
    Machine& mc = machines_[m];
    expel(m, true, Cause::provider_gone);
    for (const uint32_t j : touched_)
        if (jobs_[j].at == m) {
            jobs_[j].at = none;
            details_[j].place = mc.key;
            jobs_[j].cause = Cause::provider_gone;
            if (orphan(j)) orphans_.push_back(j);
        }
    if (mc.spec.accepting) machine_order_.erase({mc.cls, mc.key.n});
    machine_index_.erase(mc.key.n);
    ++room_version_;
    mc.open = false;
    mc.key = {};
    free_machines_.push_back(m);
    ++version_;
}

}  // namespace souk::market
