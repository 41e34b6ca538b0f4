// SPDX-License-Identifier: GPL-2.0-or-later
// What a user may have at most, over all homes: set by an operator, kept by the Market.
// admission.hpp says how the limits and the allocation go together.
//
// A day is a UTC day by the market's calendar: everybody can tell when it ends, and one sum is all
// that must be kept. What is charged counts on the day on which it is charged. A clock that is set
// back does not begin a day anew: by less than a day, the day goes on; by more, what was spent is
// taken along.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "kernel/base/ids.hpp"
#include "kernel/base/money.hpp"
#include "kernel/base/time.hpp"
#include "market/core/rank.hpp"

namespace souk::market {

struct Job;

inline constexpr int64_t day_ns = 86'400'000'000'000;
// The UTC day of a Unix time.
constexpr int64_t day_of(Nanos unix) { return unix.ns >= 0 ? unix.ns / day_ns : -1; }

struct UserLimits {
    std::optional<Money> spend_per_day;
    std::optional<int32_t> jobs, cpus;  // that run at once
    bool any() const { return spend_per_day || jobs || cpus; }
    bool operator==(const UserLimits&) const = default;
};

// Stored while the user has a limit.
struct UserRecord {
    uint32_t uid = 0;
    std::string name;
    UserLimits limits;
    // the day of which all is spent; it stays so until the next one, or a higher limit
    int64_t ended_day = -1;
};

// One user as the market sees it. `claiming` and `spent` are kept for all, `order` for those who
// have a limit.
struct User {
    UserRecord record;
    Money spent;                 // today; below 0 if more of yesterday's was taken back
    std::set<JobId> claiming;    // jobs that run or are on their way to
    int64_t cpus = 0;            // of these
    std::map<Rank, Job*> order;  // the unfinished ones, the most valuable first
    size_t held = 0;             // of these, by `jobs` or `cpus`

    // What may still be charged today.
    Money day_left() const {
        if (!record.limits.spend_per_day) return money_max;
        const int64_t left =
            record.limits.spend_per_day->micro - (spent.micro > 0 ? spent.micro : 0);
        return {left > 0 ? left : 0};
    }
    // Whether one more job of so many CPUs may run beside `jobs` jobs of `used` CPUs.
    bool lets(size_t jobs, int64_t used, int32_t more) const {
        const UserLimits& l = record.limits;
        return (!l.jobs || static_cast<int64_t>(jobs) < *l.jobs) &&
               (!l.cpus || used + more <= *l.cpus);
    }
};

}  // namespace souk::market
