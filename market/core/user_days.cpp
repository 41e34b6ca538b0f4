// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/user_days.hpp"

#include <algorithm>

#include "market/core/bill.hpp"

namespace souk::market {
namespace {

using Wide = __int128;

// Micro-units x ns / hour, for an hour at the price of now.
Wide rate_of(const Job& job) {
    return static_cast<Wide>(job.record.price.micro) * job.record.report.terms.cpus;
}

}  // namespace

std::vector<uint32_t> UserDays::take_due() {
    std::vector<uint32_t> all(due_.begin(), due_.end());
    due_.clear();
    return all;
}

std::optional<uint32_t> UserDays::take_ended(Nanos now) {
    if (ends_.empty() || ends_.begin()->first > now) return std::nullopt;
    const uint32_t uid = ends_.begin()->second;
    ends_.erase(ends_.begin());
    users_[uid].end = Nanos::never();
    return uid;
}

bool UserDays::looks_at_jobs(const User& user) const {
    const auto state = users_.find(user.record.uid);
    return user.is_counted() || (state != users_.end() && state->second.shared);
}

void UserDays::reckon(const User& user, const std::vector<Job*>& claiming, bool spent, Homes& homes,
                      Nanos now) {
    const uint32_t uid = user.record.uid;
    State& state = users_[uid];
    if (state.end != Nanos::never()) ends_.erase({state.end, uid});
    state.end = Nanos::never();
    const bool over = over_.erase(uid) > 0;
    share(user, claiming, spent, homes, now);
    if (!user.is_counted() || spent) return;
    Wide open = static_cast<Wide>(user.left().micro) * hour_ns, rate = 0;
    const bool none_left = open == 0 || over;
    for (const Job* const job : claiming) {
        const JobRecord& r = job->record;
        if (job->run_since == Nanos::never() || r.payee.empty()) continue;
        open -= rate_of(*job) * (bill::run_time(*job, now) - r.billed).ns + r.account.rest;
        rate += rate_of(*job);
    }
    if (!none_left && rate == 0) return;
    const Wide span = open <= 0 || rate == 0 ? 0 : open / rate;
    if (span > INT64_MAX / 2) return;
    state.end = now + Nanos{static_cast<int64_t>(span)};
    ends_.insert({state.end, uid});
}

// How far the rest of the day lets each job of the user run, for its home to keep to while this
// market is silent. All end together at the rates of now; who cannot be told otherwise keeps what
// he was told. As long as the rates are the same the shares are, so little is to be told; what they
// may be off by is kept back.
void UserDays::share(const User& user, const std::vector<Job*>& claiming, bool spent, Homes& homes,
                     Nanos now) {
    constexpr Nanos kept_back = Nanos::from_s(1), tolerance = Nanos::from_ms(400);
    const bool limited = user.is_counted();
    bool& shared = users_[user.record.uid].shared;
    if ((limited && spent) || (!limited && !shared)) return;
    shared = limited;
    Wide open = static_cast<Wide>(user.left().micro) * hour_ns, rate = 0;
    for (const Job* const job : claiming) {
        const JobRecord& r = job->record;
        open -= rate_of(*job) * std::max(Nanos{}, bill::run_time(*job, now) - r.billed).ns +
                r.account.rest;
        if (homes.is_reachable(*job))
            rate += rate_of(*job);
        else if (job->noted_day.micro >= 0)
            open -=
                static_cast<Wide>(std::max(Money{}, job->noted_day - bill::cost(*job, now)).micro) *
                hour_ns;
    }
    const Wide lasts = rate == 0 ? 0 : std::max<Wide>(0, open) / rate - kept_back.ns;
    const Nanos span{static_cast<int64_t>(std::clamp<Wide>(lasts, 0, INT64_MAX / 4))};
    for (Job* const job : claiming) {
        if (!homes.is_reachable(*job)) continue;
        const int32_t cpus = job->record.report.terms.cpus;
        const Money part = cost_of(job->record.price, cpus, span),
                    off = cost_of(job->record.price, cpus, tolerance);
        const Money to = !limited ? Money{-1} : std::min(money_max, bill::cost(*job, now) + part);
        const bool same = limited && job->noted_day.micro >= 0 && to <= job->noted_day + off &&
                          job->noted_day <= to + off;
        if (same || to == job->noted_day) continue;
        job->noted_day = to;
        homes.tell(*job);
    }
}

}  // namespace souk::market
