// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/home_budget.hpp"

#include <algorithm>
#include <utility>

#include "agentd/core/home_clock.hpp"

namespace souk {

using namespace home;

namespace {
constexpr Nanos market_lead = Nanos::from_s(2);
constexpr Nanos freeze_pause = Nanos::from_s(30);
}  // namespace

Nanos HomeBudget::due(const HomeJob& job) const {
    const Dues d = dues(job);
    return std::min(d.budget, d.day);
}

// The moments to look at a job that runs: when little is left of its budget, and when it is spent.
HomeBudget::Dues HomeBudget::dues(const HomeJob& job) const {
    const Money budget = job.terms.budget;
    Dues dues;
    if (job.cancelled || job.phase != JobPhase::running || job.price.micro <= 0) return dues;
    if (!HomeClock::runs(job)) return dues;
    if (budget.micro <= 0 && job.day_limit.micro <= 0) return dues;
    static const State fresh;
    const auto it = jobs_.find(job.id.seq);
    const State& s = it == jobs_.end() ? fresh : it->second;
    // Run time so far is that of the clock; both ends lie on it.
    const auto when = [&](Money spent) {
        const Nanos left = span_for(std::max(Money{}, spent - job.cost), job.price, job.terms.cpus);
        return job.running_since + (job.cost_run - job.stats.run_time) +
               std::min(left, Nanos::from_s(1'000'000'000));
    };
    const auto end = [&](Money spent) {
        return std::max(s.again, when(spent) + (market_is_up_ ? market_lead : Nanos{}));
    };
    if (budget.micro > 0 && s.warned != budget) {
        const Money share{
            static_cast<int64_t>(static_cast<__int128>(budget.micro) * warn_permille_ / 1000)};
        dues.budget =
            when(budget -
                 std::min(budget, std::max(share, cost_of(job.price, job.terms.cpus, warn_span_))));
    } else if (budget.micro > 0) {
        dues.budget = end(budget);
    }
    if (job.day_limit.micro > 0) dues.day = s.day_warned ? end(job.day_cost) : when(job.day_warn);
    return dues;
}

bool HomeBudget::ends(const HomeJob& job, const HomeTurn& turn) {
    const Dues d = dues(job);
    if (d.budget <= turn.now && budget_ends(job, turn)) return true;
    return d.day <= turn.now && day_ends(job, turn);
}

bool HomeBudget::budget_ends(const HomeJob& job, const HomeTurn& turn) {
    State& s = jobs_[job.id.seq];
    const std::string budget = "its budget of " + format_money(job.terms.budget) + " is used up";
    if (s.warned != job.terms.budget) {
        s.warned = job.terms.budget;
        const int64_t left = HomeClock::seconds_until(job, job.terms.budget, turn.now);
        turn.tell(job, Tell::What::warning,
                  budget + " in " + std::to_string(left) + " s at its price of " +
                      format_money(job.price) + "; then it is frozen (srun -J " + job.id.text() +
                      " -b MORE gives it more)");
        return false;
    }
    s.again = turn.now + freeze_pause;
    s.spent = budget + "; a larger one (srun -J " + job.id.text() + " -b MORE) wakes it";
    return true;
}

bool HomeBudget::day_ends(const HomeJob& job, const HomeTurn& turn) {
    State& s = jobs_[job.id.seq];
    const std::string limit = format_money(job.day_limit);
    if (!std::exchange(s.day_warned, true)) {
        const int64_t left = HomeClock::seconds_until(job, job.day_cost, turn.now);
        turn.tell(job, Tell::What::warning,
                  "the " + limit + " that its user may spend are used up in " +
                      std::to_string(left) +
                      " s at the prices of now; then it is frozen until there is more: the next "
                      "day (UTC), a higher limit or a deposit");
        return false;
    }
    s.again = turn.now + freeze_pause;
    s.spent =
        "its share of the " + limit + " that its user may spend is used up; the market wakes it";
    return true;
}

void HomeBudget::take_day(HomeJob& job, const JobNote& note) {
    if (job.phase == JobPhase::finished) return;
    job.day_limit = note.day_limit;
    job.day_cost = note.day_cost;
    const Money rest = std::max(Money{}, note.day_cost - note.cost);
    const __int128 part = note.day_left.micro > 0 ? static_cast<__int128>(note.day_limit.micro) *
                                                        rest.micro / note.day_left.micro
                                                  : 0;
    const Money share{
        static_cast<int64_t>(std::min<__int128>(part * warn_permille_ / 1000, money_max.micro))};
    const Money little = std::max(share, cost_of(note.price, job.terms.cpus, warn_span_));
    job.day_warn = job.day_cost - std::min(job.day_cost, little);
    // another day, or a higher limit
    if (rest > little + little) jobs_[job.id.seq].day_warned = false;
}

void HomeBudget::tell_why(const HomeJob& job, const HomeTurn& turn) const {
    if (const auto it = jobs_.find(job.id.seq); it != jobs_.end() && it->second.again > turn.now)
        turn.tell(job, Tell::What::comment, it->second.spent);
}

}  // namespace souk
