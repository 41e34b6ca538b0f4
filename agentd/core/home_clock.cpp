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

namespace {

// What its node says is the whole of the present epoch's, since that node counts.
Nanos cpu_since_told(const HomeJob& job, const GuestEvent& e) {
    return e.cpu_time - (e.cpu_time < job.cpu_here ? Nanos{} : job.cpu_here);
}

}  // namespace

// The first word of its node after this daemon was away. A job that runs has run all the while:
// nobody else could have stopped it. One that does not has ended or stood still at a time that
// nobody saw; what counts is the CPU time that its node measured.
void Home::prove_clock(HomeJob& job, const GuestEvent& e, Nanos now) {
    const auto it = volatile_.find(job.id.seq);
    if (it == volatile_.end()) return;
    const Nanos since = std::exchange(it->second.unproven_since, Nanos::never());
    if (since == Nanos::never() || job.running_since != Nanos::never() || since > now) return;
    if (e.state == GuestState::running) {
        job.running_since = since;
        return;
    }
    job.stats.run_time += std::min(now - since, Nanos{cpu_since_told(job, e).ns / job.terms.cpus});
    forget_stretch(job);
}

// Its clock is behind the one by which the market told what it had cost.
void Home::forget_stretch(HomeJob& job) {
    job.cost_run = std::min(job.cost_run, job.stats.run_time);
}

Money Home::cost(const HomeJob& job, Nanos now) {
    const Money more =
        cost_of(job.price, job.terms.cpus, std::max(Nanos{}, run_time(job, now) - job.cost_run));
    if (job.terms.budget.micro <= 0) return job.cost + more;
    return std::max(job.cost, std::min(job.terms.budget, job.cost + more));
}

// -------------------------------------------------------------------------------------------------
// budget

// What there is to look at: while it runs, when what is left is little, and when nothing is. By the
// price and the cost that the market last told: it freezes the job itself while it is there, so
// this node waits a moment longer then.
Home::Dues Home::money_dues(const HomeJob& job) const {
    constexpr Nanos market_lead = Nanos::from_s(2);
    const auto it = volatile_.find(job.id.seq);
    const Money budget = job.terms.budget;
    Dues dues;
    if (it == volatile_.end() || job.cancelled || job.phase != JobPhase::running ||
        job.price.micro <= 0)
        return dues;
    if (job.running_since == Nanos::never()) return dues;
    const Volatile& v = it->second;
    // Run time so far is that of the clock; both ends lie on it.
    const auto when = [&](Money spent) {
        const Nanos left = span_for(std::max(Money{}, spent - job.cost), job.price, job.terms.cpus);
        return job.running_since + (job.cost_run - job.stats.run_time) +
               std::min(left, Nanos::from_s(1'000'000'000));
    };
    const auto end = [&](Money spent) {
        return std::max(v.budget_again, when(spent) + (market_is_up_ ? market_lead : Nanos{}));
    };
    if (budget.micro > 0 && v.warned != budget) {
        const Money share{static_cast<int64_t>(static_cast<__int128>(budget.micro) *
                                               limits_.warn_permille / 1000)};
        dues.budget =
            when(budget - std::min(budget, std::max(share, cost_of(job.price, job.terms.cpus,
                                                                   limits_.warn_span))));
    } else if (budget.micro > 0) {
        dues.budget = end(budget);
    }
    if (job.day_limit.micro > 0) dues.day = v.day_warned ? end(job.day_cost) : when(job.day_warn);
    return dues;
}

void Home::money_ends(HomeJob& job, Nanos now, Outputs& out) {
    if (money_dues(job).budget <= now) budget_ends(job, now, out);
    if (money_dues(job).day <= now) day_ends(job, now, out);
}

namespace {
constexpr Nanos freeze_pause = Nanos::from_s(30);
}

// At its price of now, until it has cost that much.
int64_t Home::seconds_until(const HomeJob& job, Money spent, Nanos now) {
    const Nanos ran = run_time(job, now) - job.cost_run;
    const Nanos left =
        span_for(std::max(Money{}, spent - job.cost), job.price, job.terms.cpus) - ran;
    return std::max<int64_t>(0, left.ns / 1'000'000'000);
}

void Home::budget_ends(HomeJob& job, Nanos now, Outputs& out) {
    Volatile& v = vol(job);
    const std::string budget = "its budget of " + format_money(job.terms.budget) + " is used up";
    if (v.warned != job.terms.budget) {
        v.warned = job.terms.budget;
        out.push_back(
            Tell{job.id, Tell::What::warning,
                 budget + " in " + std::to_string(seconds_until(job, job.terms.budget, now)) +
                     " s at its price of " + format_money(job.price) +
                     "; then it is frozen (srun -J " + job.id.text() + " -b MORE gives it more)"});
        return;
    }
    v.budget_again = now + freeze_pause;
    v.spent = budget + "; a larger one (srun -J " + job.id.text() + " -b MORE) wakes it";
    freeze(job, now, out);
}

// -------------------------------------------------------------------------------------------------
// day

// The market's word of the day of the job's user: how far this job may go by itself. Little is left
// when it lasts no longer than warn_span, or is less than warn_permille of this job's part of the
// limit.
void Home::take_day(HomeJob& job, const JobNote& note) {
    if (job.phase == JobPhase::finished) return;
    job.day_limit = note.day_limit;
    job.day_cost = note.day_cost;
    const Money rest = std::max(Money{}, note.day_cost - note.cost);
    const __int128 part = note.day_left.micro > 0 ? static_cast<__int128>(note.day_limit.micro) *
                                                        rest.micro / note.day_left.micro
                                                  : 0;
    const Money share{static_cast<int64_t>(
        std::min<__int128>(part * limits_.warn_permille / 1000, money_max.micro))};
    const Money little = std::max(share, cost_of(note.price, job.terms.cpus, limits_.warn_span));
    job.day_warn = job.day_cost - std::min(job.day_cost, little);
    if (rest > little + little) vol(job).day_warned = false;  // another day, or a higher limit
}

void Home::day_ends(HomeJob& job, Nanos now, Outputs& out) {
    Volatile& v = vol(job);
    const std::string limit = format_money(job.day_limit);
    if (!std::exchange(v.day_warned, true)) {
        out.push_back(Tell{job.id, Tell::What::warning,
                           "the " + limit + " that its user may spend a day are used up in " +
                               std::to_string(seconds_until(job, job.day_cost, now)) +
                               " s at the prices of now; then it is frozen until the next day "
                               "(UTC), or a higher limit"});
        return;
    }
    v.budget_again = now + freeze_pause;
    v.spent = "its share of the " + limit +
              " that its user may spend a day is used up; the market wakes it";
    freeze(job, now, out);
}

// -------------------------------------------------------------------------------------------------
// CPU time

void Home::tally_cpu(HomeJob& job, const GuestEvent& e) {
    if (e.cpu_time.ns <= 0) return;
    job.stats.cpu_time += cpu_since_told(job, e);
    job.cpu_here = e.cpu_time;
}

}  // namespace souk
