// SPDX-License-Identifier: GPL-2.0-or-later
// Market, seventh part: what users may have at most (users.hpp). See market.hpp.
//
// Jobs and CPUs at once: admission.hpp.
//
// Spend per day. A user's charges of a day never pass the limit: the charge that would is cut, and
// all the user's jobs are frozen at the moment at which, all rates as they are, the sum reaches it.
// They go on when the next day begins or the limit is raised above what is spent.
//
// An account (market_funds.cpp) ends in the same way, where the market is metered.
#include <algorithm>

#include "kernel/base/check.hpp"
#include "market/core/market.hpp"

namespace souk::market {
void Market::load(UserRecord record) { admission_.limits_changed(book_.load(std::move(record))); }

Result<std::string> Market::set_limits(uint32_t of, const std::string& name,
                                       const UserLimits& limits, uint32_t uid, Nanos now) {
    heard(Input::set_limits, {}, {}, name);
    if (uid != root_uid)
        return fail(CauseCode::not_allowed, "only root may set what a user may have at most");
    begin_day(now);
    User& user = book_.user(of);
    for (const JobId& id : user.claiming)  // what was spent before is spent
        if (Job& job = book_.jobs().at(id); job.run_since != Nanos::never())
            account_until(job, run_time(job, now), now);
    const UserLimits before = std::exchange(user.record.limits, limits);
    user.record.name = name;
    if (user.day_left().micro > 0) user.record.ended_day = -1;
    if (!limits.allowance || limits.every != before.every) user.record.granted = -1;
    if (options_.metered && !user.funds) {
        open_account(user);
    } else if (user.funds) {
        *user.funds += limits.credit.value_or(Money{}) - before.credit.value_or(Money{});
        if (limits.credit.value_or(Money{}) > before.credit.value_or(Money{})) has_more(user);
    }
    grant(user, now);
    book_.save_user(of);
    days_.changed(of);
    for (auto& [id, job] : book_.jobs())
        if (job.user == &user && job.phase() != JobPhase::finished) touch(job);
    dirty_ = true;
    admission_.limits_changed(user);
    return called(user) + (limits.any() ? " has these limits now" : " has no limits now");
}

// -------------------------------------------------------------------------------------------------
// days

// What was charged today, of the receipts and of what is in none yet.
void Market::count_days() {
    for (auto& [uid, user] : book_.users()) {
        user.spent = ledger_.paid_today(uid);
        if (options_.metered)
            user.funds =
                ledger_.balance(Holder::user(uid)) + user.record.limits.credit.value_or(Money{});
        days_.changed(uid);
    }
    for (auto& [id, job] : book_.jobs()) {
        job.user->spent += job.record.tab.amount;
        if (job.user->funds) *job.user->funds -= job.record.tab.amount;
    }
}

// Sums of a day begin anew when the calendar says so.
void Market::begin_day(Nanos now) {
    const int64_t day = day_of(now + calendar_);
    if (day == book_.meta().day || (book_.meta().day >= 0 && day == book_.meta().day - 1)) return;
    const bool set_back = day < book_.meta().day;
    if (!set_back && book_.meta().day >= 0)
        for (const uint32_t uid : admission_.limited())
            // to the last moment of the old day
            for (const auto& [rank, job] : book_.users().at(uid).order) {
                if (job->run_since != Nanos::never()) account_until(*job, run_time(*job, now), now);
                close_tab(*job, now);
            }
    for (const uint32_t uid : admission_.limited()) {
        User& user = book_.users().at(uid);
        if (user.record.ended_day < 0) continue;
        user.record.ended_day = set_back && user.record.ended_day == book_.meta().day ? day : -1;
        book_.save_user(uid);
        for (const auto& [rank, job] : user.order) touch(*job);
    }
    ledger_.set_day(day, set_back);
    book_.meta().day = day;
    book_.save_meta();
    count_days();
    for (const uint32_t uid : admission_.limited()) grant(book_.users().at(uid), now);
}

void Market::spend(User& user, Money cost) {
    user.spent += cost;
    if (user.funds) *user.funds -= cost;
    days_.changed(user.record.uid);
}

bool Market::Homes::is_reachable(const Job& job) const {
    const Node* const home = market_.home_of(job);
    return home && home->connected;
}

void Market::Homes::tell(Job& job) {
    job.note_due = true;
    market_.notes_.of(job);
}

std::vector<Job*> Market::claiming(const User& user) {
    std::vector<Job*> jobs;
    for (const JobId& id : user.claiming) jobs.push_back(&book_.jobs().at(id));
    return jobs;
}

void Market::reckon_days(Nanos now) {
    Homes homes(*this);
    for (const uint32_t uid : days_.take_due()) {
        const User& user = book_.users().at(uid);
        days_.reckon(user, days_.looks_at_jobs(user) ? claiming(user) : std::vector<Job*>{},
                     day_is_spent(user), homes, now);
    }
}

void Market::end_days(Nanos now) {
    reckon_days(now);
    while (const auto uid = days_.take_ended(now)) {
        User& user = book_.users().at(*uid);
        for (const JobId& id : user.claiming) {
            Job& job = book_.jobs().at(id);
            if (job.run_since != Nanos::never()) account_until(job, run_time(job, now), now);
        }
        if (user.account_ends_first()) {
            user.is_empty = true;
        } else {
            user.record.ended_day = book_.meta().day;
            book_.save_user(user.record.uid);
        }
        for (const auto& [rank, job] : user.order) touch(*job);
    }
}

// -------------------------------------------------------------------------------------------------
// jobs and CPUs

std::optional<bool> Market::Known::runs_anyhow(const Job& job) const {
    const auto known = market_.fact(job);
    return known ? std::optional(known->state == JobState::running) : std::nullopt;
}

JobDemand Market::Known::spec_of(const Job& job, Job::Held held) const {
    return market_.spec_of(job, market_.wish(job, held));
}

void Market::decide(Nanos now, bool by_own_solver) {
    const auto when = by_own_solver ? std::optional(now) : std::nullopt;
    const Admission::Decision d = admission_.decide(Known(*this), book_.users(), solver_, when);
    for (const auto& [key, held] : d.held) {
        Job& job = *held.first;
        const Wish w = wish(job);
        note_wait(job, waits(w), now);
        if (log_) log_->told(job, spec_of(job, w));
        notes_.of(job);
        pending_.insert(job);
    }
    take_changes(d.changes);
    if (!by_own_solver) dirty_ = dirty_ || d.again;  // and then the program is asked
}

std::string Market::audit_users() const {
    std::map<uint32_t, User> sums;
    for (const auto& [id, job] : book_.jobs()) {
        const uint32_t uid = job.record.payer != 0 ? job.record.payer : job.record.report.uid;
        User& sum = sums[uid];
        if (job.user != &book_.users().at(uid)) return id.text() + " is not listed with its user";
        sum.spent += job.record.tab.amount;
        sum.held += job.held != Job::Held::none;
        if (job.claim_cpus == 0 || (job.claims[0].empty() && job.claims[1].empty())) continue;
        sum.cpus += job.claim_cpus;
        sum.claiming.insert(id);
    }
    for (const auto& [uid, user] : book_.users()) {
        const User& sum = sums[uid];
        if (user.funds && *user.funds != ledger_.balance(Holder::user(uid)) - sum.spent +
                                             user.record.limits.credit.value_or(Money{}))
            return called(user) + " has other funds than its account says";
        if (user.spent != sum.spent + ledger_.paid_today(uid))
            return called(user) + " has spent other than its receipts say";
        if (user.claiming != sum.claiming || user.cpus != sum.cpus)
            return called(user) + " counts what it runs wrong";
        if (user.held != sum.held) return called(user) + " counts the jobs that are held wrong";
    }
    return {};
}

}  // namespace souk::market
