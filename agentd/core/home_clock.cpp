// SPDX-License-Identifier: GPL-2.0-or-later
// Home: how long a job has run, what that costs, and when what it may cost ends. See home.hpp.
#include <algorithm>
#include <utility>

#include "agentd/core/home.hpp"

namespace souk {

using namespace home;

void Home::start_clock(HomeJob& job, Nanos now) const {
    if (job.running_since != Nanos::never()) return;
    job.running_since = now;
    job.boot = limits_.boot;
}

void Home::stop_clock(HomeJob& job, Nanos now) {
    job.stats.run_time = run_time(job, now);
    job.running_since = Nanos::never();
}

Nanos Home::run_time(const HomeJob& job, Nanos now) {
    if (job.running_since == Nanos::never()) return job.stats.run_time;
    return job.stats.run_time + (now - job.running_since);
}

// To be written down: what has run so far is kept, whatever becomes of this daemon.
void Home::fold_clock(HomeJob& job, Nanos now) {
    if (job.running_since == Nanos::never()) return;
    job.stats.run_time = run_time(job, now);
    job.running_since = now;
}

// The first word of its node after this daemon was away. A job that runs has run all the while: nobody else could have
// stopped it. One that does not has ended or stood still at a time that nobody saw; what counts is the CPU time that its
// node measured.
void Home::prove_clock(HomeJob& job, const GuestEvent& e, Nanos now) {
    const auto it = volatile_.find(job.id.seq);
    if (it == volatile_.end()) return;
    const Nanos since = std::exchange(it->second.unproven_since, Nanos::never());
    if (since == Nanos::never() || job.running_since != Nanos::never() || since > now) return;
    if (e.state == GuestState::running) {
        job.running_since = since;
        return;
    }
    const Nanos used = e.cpu_time - (e.cpu_time < job.cpu_here ? Nanos{} : job.cpu_here);
    job.stats.run_time += std::min(now - since, Nanos{used.ns / job.terms.cpus});
    forget_stretch(job);
}

// Its clock is behind the one by which the market told what it had cost.
void Home::forget_stretch(HomeJob& job) { job.cost_run = std::min(job.cost_run, job.stats.run_time); }

Money Home::cost(const HomeJob& job, Nanos now) {
    const Money more = cost_of(job.price, job.terms.cpus, std::max(Nanos{}, run_time(job, now) - job.cost_run));
    if (job.terms.budget.micro <= 0) return job.cost + more;
    return std::max(job.cost, std::min(job.terms.budget, job.cost + more));
}

// --------------------------------------------------------------------------------------------------- budget

std::string Home::budget_used_up(const HomeJob& job) {
    return "its budget of " + format_money(job.terms.budget) + " is used up; a larger one (srun -J " + job.id.text() +
           " -b MORE) wakes it";
}

// When its budget is to be looked at: while it runs, when what is left is little, and when nothing is. By the price and the
// cost that the market last told: it freezes the job itself while it is there, so this node waits a moment longer then.
Nanos Home::budget_due(const HomeJob& job) const {
    constexpr Nanos market_lead = Nanos::from_s(2);
    const auto it = volatile_.find(job.id.seq);
    const Money budget = job.terms.budget;
    if (it == volatile_.end() || job.cancelled || job.phase != JobPhase::running || budget.micro <= 0 || job.price.micro <= 0) return Nanos::never();
    const Volatile& v = it->second;
    if (job.running_since == Nanos::never()) return Nanos::never();
    // Run time so far is that of the clock; both ends lie on it.
    const auto when = [&](Money spent) {
        const Nanos left = span_for(std::max(Money{}, spent - job.cost), job.price, job.terms.cpus);
        return job.running_since + (job.cost_run - job.stats.run_time) + std::min(left, Nanos::from_s(1'000'000'000));
    };
    if (v.warned != budget) {
        const Money share{static_cast<int64_t>(static_cast<__int128>(budget.micro) * limits_.warn_permille / 1000)};
        return when(budget - std::min(budget, std::max(share, cost_of(job.price, job.terms.cpus, limits_.warn_span))));
    }
    return std::max(v.budget_again, when(budget) + (market_is_up_ ? market_lead : Nanos{}));
}

void Home::budget_ends(HomeJob& job, Nanos now, Outputs& out) {
    constexpr Nanos pause = Nanos::from_s(30);
    Volatile& v = vol(job);
    if (v.warned != job.terms.budget) {
        v.warned = job.terms.budget;
        const Nanos ran = run_time(job, now) - job.cost_run;
        const Nanos left = span_for(std::max(Money{}, job.terms.budget - job.cost), job.price, job.terms.cpus) - ran;
        out.push_back(Tell{job.id, Tell::What::warning,
                           "its budget of " + format_money(job.terms.budget) + " is used up in " +
                               std::to_string(std::max<int64_t>(0, left.ns / 1'000'000'000)) + " s at its price of " +
                               format_money(job.price) + "; then it is frozen (srun -J " + job.id.text() +
                               " -b MORE gives it more)"});
        return;
    }
    v.budget_again = now + pause;
    freeze(job, now, out);
}

// What its node says is the whole of the present epoch's, since that node counts.
void Home::tally_cpu(HomeJob& job, const GuestEvent& e) {
    if (e.cpu_time.ns <= 0) return;
    job.stats.cpu_time += e.cpu_time - (e.cpu_time < job.cpu_here ? Nanos{} : job.cpu_here);
    job.cpu_here = e.cpu_time;
}

}  // namespace souk
