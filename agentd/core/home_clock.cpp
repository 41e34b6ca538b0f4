// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/home_clock.hpp"

#include <algorithm>
#include <utility>

#include "kernel/base/saturating.hpp"

namespace souk {

void HomeClock::start(HomeJob& job, const HomeTurn& turn) {
    if (runs(job)) return;
    job.running_since = turn.now;
    job.boot = turn.boot;
}

void HomeClock::stop(HomeJob& job, Nanos now) {
    job.work = work(job, now);
    job.stats.run_time = run_time(job, now);
    job.running_since = Nanos::never();
}

bool HomeClock::runs_on(HomeJob& job, const GuestEvent& e, const HomeTurn& turn) {
    const bool ran = runs(job);
    e.paused.empty() ? start(job, turn) : stop(job, turn.now);
    return runs(job) != ran;
}

Nanos HomeClock::run_time(const HomeJob& job, Nanos now) {
    if (!runs(job)) return job.stats.run_time;
    return job.stats.run_time + (now - job.running_since);
}

namespace {

Nanos work_of(Nanos ran, const HomeJob& job) {
    return {static_cast<int64_t>(static_cast<__int128>(ran.ns) * job.speed / 100)};
}

}  // namespace

Nanos HomeClock::work(const HomeJob& job, Nanos now) {
    const Nanos stretch = runs(job) ? now - job.running_since : Nanos{};
    return {saturating_add(job.work.ns, work_of(stretch, job).ns)};
}

void HomeClock::fold(HomeJob& job, Nanos now) {
    if (!runs(job)) return;
    job.work = work(job, now);
    job.stats.run_time = run_time(job, now);
    job.running_since = now;
}

Money HomeClock::cost(const HomeJob& job, Nanos now) {
    const Money more =
        cost_of(job.price, job.terms.cpus, std::max(Nanos{}, run_time(job, now) - job.cost_run));
    if (job.terms.budget.micro <= 0) return job.cost + more;
    return std::max(job.cost, std::min(job.terms.budget, job.cost + more));
}

int64_t HomeClock::seconds_until(const HomeJob& job, Money spent, Nanos now) {
    const Nanos ran = run_time(job, now) - job.cost_run;
    const Nanos left =
        span_for(std::max(Money{}, spent - job.cost), job.price, job.terms.cpus) - ran;
    return std::max<int64_t>(0, left.ns / 1'000'000'000);
}

namespace {

Nanos cpu_since_told(const HomeJob& job, const GuestEvent& e) {
    return e.cpu_time - (e.cpu_time < job.cpu_here ? Nanos{} : job.cpu_here);
}

// Its clock is behind the one by which the market told what it had cost.
void forget_stretch(HomeJob& job) { job.cost_run = std::min(job.cost_run, job.stats.run_time); }

}  // namespace

void HomeClock::tally_use(HomeJob& job, const GuestEvent& e) {
    job.stats.memory_peak = std::max(job.stats.memory_peak, e.memory_peak);
    if (e.cpu_time.ns <= 0) return;
    job.stats.cpu_time.ns = saturating_add(job.stats.cpu_time.ns, cpu_since_told(job, e).ns);
    job.cpu_here = e.cpu_time;
}

void HomeClock::loaded(HomeJob& job, uint64_t boot) {
    const Nanos ran_on = std::exchange(job.running_since, Nanos::never());
    const bool may_run = job.phase == JobPhase::running || job.phase == JobPhase::starting;
    if (!may_run || job.boot != boot || boot == 0)
        forget_stretch(job);
    else if (ran_on != Nanos::never())
        unproven_[job.id.seq] = ran_on;
    if (job.cost_run.ns < 0) job.cost_run = job.stats.run_time;
}

void HomeClock::prove(HomeJob& job, const GuestEvent& e, Nanos now) {
    const auto entry = unproven_.extract(job.id.seq);
    if (!entry || runs(job) || entry.mapped() > now) return;
    const Nanos since = entry.mapped();
    if (e.state == GuestState::running && e.paused.empty()) {
        job.running_since = since;
        return;
    }
    const Nanos ran = std::min(now - since, Nanos{cpu_since_told(job, e).ns / job.terms.cpus});
    job.work.ns = saturating_add(job.work.ns, work_of(ran, job).ns);
    job.stats.run_time += ran;
    forget_stretch(job);
}

}  // namespace souk
