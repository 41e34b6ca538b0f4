// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/admission.hpp"

#include "kernel/base/check.hpp"
#include "market/core/equal_jobs.hpp"
#include "market/core/least_bids.hpp"

namespace souk::market {
namespace {

constexpr Nanos admit_pace = Nanos::from_s(1);

std::string counted(int32_t n, const char* what) {
    return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

// The jobs and CPUs that a user runs or is about to run.
struct Sum {
    size_t jobs = 0;
    int64_t cpus = 0;
    void add(const Job& job) {
        ++jobs;
        cpus += job.record.report.terms.cpus;
    }
};

// Counts the jobs that run whatever is decided now.
Sum fixed(const Admission::Jobs& jobs, const User& user) {
    Sum sum;
    for (const JobId& id : user.claiming) {
        const Job& job = jobs.at(id);
        if (jobs.runs_anyhow(job).value_or(false)) sum.add(job);
    }
    return sum;
}

}  // namespace

std::string called(const User& u) {
    return (is_project(u.record.uid) ? "project " : "user ") +
           (u.record.name.empty() ? std::to_string(u.record.uid) : u.record.name);
}

Job::Held Admission::Decision::held_of(const Job& job) const {
    const auto it = held.find(job.key);
    return it == held.end() ? job.held : it->second.second;
}

void Admission::Decision::hold(Job& job, Job::Held why) {
    more_held[job.user->record.uid] += (why != Job::Held::none) - (held_of(job) != Job::Held::none);
    held[job.key] = {&job, why};
    turned.push_back(&job);
}

void Admission::limits_changed(User& user) {
    const uint32_t uid = user.record.uid;
    due_.insert(uid);
    if (user.is_bounded()) {
        limited_.insert(uid);
        return;
    }
    limited_.erase(uid);
    for (const auto& [rank, job] : std::map(user.order)) unlist(*job);
}

void Admission::list(Job& job) {
    if (!limited_.contains(job.user->record.uid)) return;
    const Turn turn = EqualJobs::turn_of(job);
    const Rank rank = Rank::of(job.bid, turn.arrival, job.key, turn.weight);
    due_.insert(job.user->record.uid);
    if (job.is_listed && job.listed == rank) return;
    if (job.is_listed) job.user->order.erase(job.listed);
    job.listed = rank;
    job.is_listed = true;
    job.user->order.emplace(rank, &job);
}

void Admission::unlist(Job& job) {
    if (job.held != Job::Held::none) --job.user->held;
    job.held = Job::Held::none;
    if (!std::exchange(job.is_listed, false)) return;
    job.user->order.erase(job.listed);
    due_.insert(job.user->record.uid);
}

// One walk over a user's jobs, into `d`; false: all are as they should be. `more` false: nobody is
// let in, so that it ends.
bool Admission::walk(const Jobs& jobs, const User& user, const Solver& solver,
                     std::span<Job> guests, bool more, Decision& d) const {
    const UserLimits& limits = user.record.limits;
    Sum sum = fixed(jobs, user);
    size_t looked_at = 0;
    const size_t admitted =
        user.order.size() + guests.size() - (user.held + d.more_held[user.record.uid]);
    bool changed = false;
    const auto look = [&](Job& job) {  // false: the others are held
        if (!user.lets(sum.jobs, sum.cpus, 1) && looked_at == admitted) return false;
        const bool held = d.held_of(job) != Job::Held::none;
        looked_at += !held;
        if (jobs.runs_anyhow(job)) return true;
        if (!user.lets(sum.jobs, sum.cpus, job.record.report.terms.cpus)) {
            if (!held)
                d.hold(job, limits.jobs && static_cast<int64_t>(sum.jobs) >= *limits.jobs
                                ? Job::Held::jobs
                                : Job::Held::cpus);
            changed = changed || !held;
        } else if (held && more) {
            d.hold(job, Job::Held::none);
            changed = true;
        } else if (held) {
            d.unsettled = true;
        } else if (const auto spec = solver.job(job.key);
                   spec && spec->state == JobState::running) {
            sum.add(job);
        }
        return true;
    };
    for (const auto& [rank, job] : user.order) {
        for (; !guests.empty() && guests.front().listed < rank; guests = guests.subspan(1))
            if (!look(guests.front())) return changed;
        if (!look(*job)) return changed;
    }
    for (Job& guest : guests)
        if (!look(guest)) break;
    return changed;
}

Admission::Decision Admission::work_out(const Jobs& jobs, const Users& users, Solver& solver,
                                        std::span<Job> guests, std::optional<Nanos> now,
                                        std::set<uint32_t> due) const {
    constexpr int rounds_max = 16;
    Decision d;
    const auto solve = [&] {
        if (!now) return;
        const auto changes = solver.solve(*now);
        d.changes.insert(d.changes.end(), changes.begin(), changes.end());
        for (const Change& change : changes)
            if (const Job* const job = jobs.of(change.job)) due.insert(job->user->record.uid);
    };
    solve();
    for (int round = 0; round == 0 || d.again; ++round) {
        d.again = false;
        for (const uint32_t uid : std::exchange(due, {})) {
            if (!limited_.contains(uid)) continue;
            const bool own = !guests.empty() && guests.front().user->record.uid == uid;
            const std::span<Job> mine = own ? guests : std::span<Job>{};
            if (walk(jobs, users.at(uid), solver, mine, round < rounds_max, d))
                d.again = due.insert(uid).second;
        }
        for (Job* const job : std::exchange(d.turned, {}))
            MUST(solver.change_job(job->key, jobs.spec_of(*job, d.held_of(*job))));
        if (!now) break;
        if (!d.again) continue;
        // Nothing of what the rounds before changed has happened. So the solver hears again where
        // these jobs are: who was in the way of a job that is held now, after all, goes back
        // without a move (which moves_max might refuse).
        // Starts come last in the changes of a round, and leave the places of others first here.
        for (auto change = d.changes.rbegin(); change != d.changes.rend(); ++change) {
            Job* job = jobs.of(change->job);
            for (Job& guest : guests)
                if (guest.key == change->job) job = &guest;
            if (!job) continue;
            const Job::Held held = d.held_of(*job);
            MUST(solver.change_job(job->key, jobs.spec_of(*job, held)));
            d.held[job->key] = {job, held};
        }
        solve();
    }
    return d;
}

Admission::Decision Admission::decide(const Jobs& jobs, const Users& users, Solver& solver,
                                      std::optional<Nanos> now) {
    if (!now || *now >= again_at_) due_.insert(limited_.begin(), limited_.end());
    Decision d = work_out(jobs, users, solver, {}, now, std::exchange(due_, {}));
    for (const auto& [key, held] : d.held) {
        Job& job = *held.first;
        job.user->held += (held.second != Job::Held::none) - (job.held != Job::Held::none);
        job.held = held.second;
    }
    if (now) again_at_ = d.unsettled ? *now + admit_pace : Nanos::never();
    return d;
}

std::optional<Money> Admission::bid_within(const Jobs& jobs, const User& user, int32_t cpus,
                                           int32_t weight, const Solver& solver) {
    Sum sum = fixed(jobs, user);
    if (!user.lets(sum.jobs, sum.cpus, cpus)) return {};
    for (const auto& [rank, job] : user.order) {
        const auto spec = solver.job(job->key);
        if (jobs.runs_anyhow(*job) || !spec || spec->state != JobState::running) continue;
        ++sum.jobs;
        sum.cpus += spec->cpus;
        if (!user.lets(sum.jobs, sum.cpus, cpus))
            return above(least_weighed(Money{-rank.first}, weight));
    }
    return Money{};
}

bool Admission::has_room(const Job& job) {
    const User& user = *job.user;
    return user.lets(user.claiming.size(), user.cpus, job.record.report.terms.cpus) ||
           user.claiming.contains(job.id());
}

Reason Admission::why(const User& user, const Job& job, Job::Held held, bool spent) {
    const UserLimits& limits = user.record.limits;
    if (user.is_empty) return Reason(ReasonCode::account_empty).with(Figure::user, called(user));
    if (user.is_full) return Reason(ReasonCode::account_full).with(Figure::user, called(user));
    if (user.owes)
        return Reason(ReasonCode::site_owes)
            .with(Figure::cause, std::string(of_site(job.id().home).site));
    if (user.is_closed)
        return Reason(ReasonCode::user_hours)
            .with(Figure::user, called(user))
            .with(Figure::cause, limits.hours);
    if (limits.spend_per_day && spent)
        return Reason(ReasonCode::user_day)
            .with(Figure::user, called(user))
            .with(Figure::limit, *limits.spend_per_day);
    if (held == Job::Held::jobs && limits.jobs)
        return Reason(ReasonCode::user_jobs)
            .with(Figure::user, called(user))
            .with(Figure::count, counted(*limits.jobs, "job"));
    if (held != Job::Held::cpus || !limits.cpus) return {};
    return Reason(ReasonCode::user_cpus)
        .with(Figure::user, called(user))
        .with(Figure::count, counted(*limits.cpus, "CPU"))
        .with(Figure::cpus, int64_t{job.record.report.terms.cpus});
}

}  // namespace souk::market
