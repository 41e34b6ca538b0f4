// SPDX-License-Identifier: GPL-2.0-or-later
// Market, seventh part: what users may have at most (users.hpp). See market.hpp.
//
// Jobs and CPUs at once. A job that its user's limits leave no place for is held: the solver knows
// it as one that gets nothing, so it competes with nobody, and prices are those of the market
// without it. Who is held is defined by one walk over a user's jobs, the most valuable first: a job
// that has a place counts, one that lost its contest does not (so it keeps no lesser one from
// running), one that would pass the limit is held. As the solver gives places by rank, and who
// ranks lower changes nothing for who ranks higher, walk and solver in turn come to rest at what
// one pass over all jobs by rank would give that skips who would pass a limit: each round settles
// at least the next job. So whatever happened before, with greedy_migration and its plain rules:
//   - no user runs more jobs or CPUs than the limits say, at any moment (place_one looks at what
//     really runs);
//   - no justified envy among those whose limits allow: who is not held envies nobody; who is held
//     would pass a limit beside the more valuable jobs of its user that run;
//   - the allocation is that of a market that was told everything at once (incremental = full).
// What is not to be decided about (in transit, not connected) counts first. With
// proportional_share, migration-aware rules and a solver program the limits hold all the same, and
// who of a user's jobs runs follows that algorithm's order until the walk finds a more valuable
// one. What an operator holds at a node is not above its user's limits.
//
// Spend per day. A user's charges of a day never pass the limit: the charge that would is cut, and
// all the user's jobs are frozen at the moment at which, all rates as they are, the sum reaches it.
// They go on when the next day begins or the limit is raised above what is spent.
#include <algorithm>

#include "kernel/base/check.hpp"
#include "market/core/market.hpp"

namespace souk::market {
namespace {
constexpr Nanos admit_pace = Nanos::from_s(1);

std::string called(const User& u) {
    return "user " + (u.record.name.empty() ? std::to_string(u.record.uid) : u.record.name);
}
std::string counted(int32_t n, const char* what) {
    return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

}  // namespace

void Market::load(UserRecord record) {
    User& user = user_of(record.uid);
    if (record.limits.any()) limited_.insert(record.uid);
    user.record = std::move(record);
}

Result<std::string> Market::set_limits(uint32_t of, const std::string& name,
                                       const UserLimits& limits, uint32_t uid, Nanos now) {
    heard(Input::set_limits, {}, {}, name);
    if (uid != root_uid) return fail("only root may set what a user may have at most");
    begin_day(now);
    User& user = user_of(of);
    for (const JobId& id : user.claiming)  // what was spent before is spent
        if (Job& job = jobs_.at(id); job.run_since != Nanos::never())
            account_until(job, run_time(job, now), now);
    user.record.name = name;
    user.record.limits = limits;
    if (user.day_left().micro > 0) user.record.ended_day = -1;
    if (limits.any()) limited_.insert(of);
    unsaved_users_.insert(of);
    days_.changed(of);
    admit_due_.insert(of);
    for (auto& [id, job] : jobs_)
        if (job.user == &user && job.phase() != JobPhase::finished) touch(job);
    dirty_ = true;
    if (limits.any()) return called(user) + " has these limits now";
    limited_.erase(of);
    for (const auto& [rank, job] : std::map(user.order)) unlist(*job);
    return called(user) + " has no limits now";
}

// -------------------------------------------------------------------------------------------------
// days

// What was charged today, of the receipts and of what is in none yet.
void Market::count_days() {
    for (auto& [uid, user] : users_) {
        user.spent = ledger_.paid_today(uid);
        days_.changed(uid);
    }
    for (auto& [id, job] : jobs_) job.user->spent += job.record.tab.amount;
}

// Sums of a day begin anew when the calendar says so.
void Market::begin_day(Nanos now) {
    const int64_t day = day_of(now + calendar_);
    if (day == meta_.day || (meta_.day >= 0 && day == meta_.day - 1)) return;
    const bool set_back = day < meta_.day;
    if (!set_back && meta_.day >= 0)
        for (const uint32_t uid : limited_)
            // to the last moment of the old day
            for (const auto& [rank, job] : users_.at(uid).order) {
                if (job->run_since != Nanos::never()) account_until(*job, run_time(*job, now), now);
                close_tab(*job, now);
            }
    for (const uint32_t uid : limited_) {
        User& user = users_.at(uid);
        if (user.record.ended_day < 0) continue;
        user.record.ended_day = set_back && user.record.ended_day == meta_.day ? day : -1;
        unsaved_users_.insert(uid);
        for (const auto& [rank, job] : user.order) touch(*job);
    }
    ledger_.set_day(day, set_back);
    meta_.day = day;
    meta_unsaved_ = true;
    count_days();
}

void Market::spend(User& user, Money cost) {
    user.spent += cost;
    days_.changed(user.record.uid);
}

bool Market::Homes::is_reachable(const Job& job) const {
    const Node* const home = market_.home_of(job);
    return home && home->connected;
}

void Market::Homes::tell(Job& job) {
    job.note_due = true;
    market_.noted_.insert(job);
}

std::vector<Job*> Market::claiming(const User& user) {
    std::vector<Job*> jobs;
    for (const JobId& id : user.claiming) jobs.push_back(&jobs_.at(id));
    return jobs;
}

void Market::reckon_days(Nanos now) {
    Homes homes(*this);
    for (const uint32_t uid : days_.take_due()) {
        const User& user = users_.at(uid);
        days_.reckon(user, claiming(user), day_is_spent(user), homes, now);
    }
}

void Market::end_days(Nanos now) {
    reckon_days(now);
    while (const auto uid = days_.take_ended(now)) {
        User& user = users_.at(*uid);
        for (const JobId& id : user.claiming) {
            Job& job = jobs_.at(id);
            if (job.run_since != Nanos::never()) account_until(job, run_time(job, now), now);
        }
        user.record.ended_day = meta_.day;
        unsaved_users_.insert(user.record.uid);
        for (const auto& [rank, job] : user.order) touch(*job);
    }
}

// -------------------------------------------------------------------------------------------------
// jobs and CPUs

void Market::list(Job& job) {
    if (!limited_.contains(job.user->record.uid)) return;
    const Rank rank = Rank::of(job.bid, job.record.report.submitted, job.key);
    admit_due_.insert(job.user->record.uid);
    if (job.is_listed && job.listed == rank) return;
    if (job.is_listed) job.user->order.erase(job.listed);
    job.listed = rank;
    job.is_listed = true;
    job.user->order.emplace(rank, &job);
}

void Market::unlist(Job& job) {
    if (job.held != Job::Held::none) --job.user->held;
    job.held = Job::Held::none;
    if (!std::exchange(job.is_listed, false)) return;
    job.user->order.erase(job.listed);
    admit_due_.insert(job.user->record.uid);
}

// One walk over a user's jobs, into `d`; false: all are as they should be. `more` false: nobody is
// let in, so that it ends.
bool Market::walk(const User& user, const Solver& solver, std::span<Job> guests, bool more,
                  Decision& d) const {
    const UserLimits& limits = user.record.limits;
    size_t jobs = 0, looked_at = 0;
    int64_t cpus = 0;
    const auto count = [&](const Job& job) {
        ++jobs;
        cpus += job.record.report.terms.cpus;
    };
    for (const JobId& id : user.claiming) {
        const Job& job = jobs_.at(id);
        if (const auto known = fact(job); known && known->state == JobState::running) count(job);
    }
    const size_t admitted =
        user.order.size() + guests.size() - (user.held + d.more_held[user.record.uid]);
    bool changed = false;
    const auto look = [&](Job& job) {  // false: the others are held
        if (!user.lets(jobs, cpus, 1) && looked_at == admitted) return false;
        const bool held = d.held_of(job) != Job::Held::none;
        looked_at += !held;
        if (fact(job)) return true;
        if (!user.lets(jobs, cpus, job.record.report.terms.cpus)) {
            if (!held)
                d.hold(job, limits.jobs && static_cast<int64_t>(jobs) >= *limits.jobs
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
            count(job);
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

// The solver and the limits in turn, until both are content. `guests`: more jobs of one user, in
// the order of their ranks, that the solver knows and no list does. Without `now` the solver is
// another program: one walk over what it said.
Market::Decision Market::work_out(Solver& solver, std::span<Job> guests, std::optional<Nanos> now,
                                  std::set<uint32_t> due) const {
    constexpr int rounds_max = 16;
    Decision d;
    const auto solve = [&] {
        if (!now) return;
        const auto changes = solver.solve(*now);
        d.changes.insert(d.changes.end(), changes.begin(), changes.end());
        for (const Change& change : changes)
            if (const Job* const job = job_by_key_.find(change.job.n))
                due.insert(job->user->record.uid);
    };
    solve();
    for (int round = 0; round == 0 || d.again; ++round) {
        d.again = false;
        for (const uint32_t uid : std::exchange(due, {})) {
            if (!limited_.contains(uid)) continue;
            const bool own = !guests.empty() && guests.front().user->record.uid == uid;
            const std::span<Job> mine = own ? guests : std::span<Job>{};
            if (walk(users_.at(uid), solver, mine, round < rounds_max, d))
                d.again = due.insert(uid).second;
        }
        for (Job* const job : std::exchange(d.turned, {}))
            MUST(solver.change_job(job->key, spec_of(*job, wish(*job, d.held_of(*job)))));
        if (!now) break;
        if (!d.again) continue;
        // Nothing of what the rounds before changed has happened. So the solver hears again where
        // these jobs are: who was in the way of a job that is held now, after all, goes back
        // without a move (which moves_max might refuse).
        // Starts come last in the changes of a round, and leave the places of others first here.
        for (auto change = d.changes.rbegin(); change != d.changes.rend(); ++change) {
            Job* job = job_by_key_.find(change->job.n);
            for (Job& guest : guests)
                if (guest.key == change->job) job = &guest;
            if (!job) continue;
            const Job::Held held = d.held_of(*job);
            MUST(solver.change_job(job->key, spec_of(*job, wish(*job, held))));
            d.held[job->key] = {job, held};
        }
        solve();
    }
    return d;
}

void Market::decide(std::optional<Nanos> now) {
    if (!now || *now >= admit_at_) admit_due_.insert(limited_.begin(), limited_.end());
    Decision d = work_out(solver_, {}, now, std::exchange(admit_due_, {}));
    for (const auto& [key, held] : d.held) {
        Job& job = *held.first;
        job.user->held += (held.second != Job::Held::none) - (job.held != Job::Held::none);
        job.held = held.second;
        if (log_) log_->told(job, spec_of(job, wish(job)));
        noted_.insert(job);
        pending_.insert(job);
    }
    take_changes(d.changes);
    if (!now)
        dirty_ = dirty_ || d.again;  // and then the program is asked
    else
        admit_at_ = d.unsettled ? *now + admit_pace : Nanos::never();
}

// Beside what its user really runs now.
bool Market::has_room(const Job& job) const {
    const User& user = *job.user;
    return user.lets(user.claiming.size(), user.cpus, job.record.report.terms.cpus) ||
           user.claiming.contains(job.id());
}

// Why the limits keep it from running; empty if they do not.
std::string Market::limit_comment(const User& user, const Job& job, Job::Held held) const {
    const UserLimits& limits = user.record.limits;
    const int32_t needs = job.record.report.terms.cpus;
    if (limits.spend_per_day && day_is_spent(user))
        return called(user) + " has spent the " + format_money(*limits.spend_per_day) +
               " of this day (UTC); it goes on tomorrow, or with a higher limit";
    if (held == Job::Held::jobs && limits.jobs)
        return called(user) + " may run " + counted(*limits.jobs, "job") + " at once";
    if (held != Job::Held::cpus || !limits.cpus) return {};
    return called(user) + " may use " + counted(*limits.cpus, "CPU") + " at once; it needs " +
           std::to_string(needs);
}

std::string Market::audit_users() const {
    std::map<uint32_t, User> sums;
    for (const auto& [id, job] : jobs_) {
        const uint32_t uid = job.record.report.uid;
        User& sum = sums[uid];
        if (job.user != &users_.at(uid)) return id.text() + " is not listed with its user";
        sum.spent += job.record.tab.amount;
        sum.held += job.held != Job::Held::none;
        if (job.claim_cpus == 0 || (job.claims[0].empty() && job.claims[1].empty())) continue;
        sum.cpus += job.claim_cpus;
        sum.claiming.insert(id);
    }
    for (const auto& [uid, user] : users_) {
        const User& sum = sums[uid];
        if (user.spent != sum.spent + ledger_.paid_today(uid))
            return called(user) + " has spent other than its receipts say";
        if (user.claiming != sum.claiming || user.cpus != sum.cpus)
            return called(user) + " counts what it runs wrong";
        if (user.held != sum.held) return called(user) + " counts the jobs that are held wrong";
    }
    return {};
}

}  // namespace souk::market
