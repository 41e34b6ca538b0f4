// SPDX-License-Identifier: GPL-2.0-or-later
// The limits of a user over all homes, which an operator sets and the Market keeps. admission.hpp
// says how the limits and the allocation go together.
//
// A day is a UTC day by the market's calendar: everybody can tell when it ends, and one sum is all
// that must be kept. What is charged counts on the day on which it is charged. A clock that is set
// back does not begin a day anew: by less than a day, the day goes on; by more, what was spent is
// taken along.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/ids.hpp"
#include "kernel/base/money.hpp"
#include "kernel/base/time.hpp"
#include "kernel/base/time_frames.hpp"
#include "market/core/rank.hpp"

namespace souk::market {

struct Job;

inline constexpr int64_t day_ns = 86'400'000'000'000;
// The UTC day of a Unix time.
constexpr int64_t day_of(Nanos unix) { return unix.ns >= 0 ? unix.ns / day_ns : -1; }

// How often an allowance is given: each day, week (from Monday on) or month, in UTC.
enum class Every : uint8_t { day, week, month };
const char* to_string(Every every);
// The number of the day, week or month that a day is of.
int64_t period_of(Every every, int64_t day);

struct UserLimits {
    std::optional<Money> spend_per_day;
    std::optional<int32_t> jobs, cpus;  // that run at once
    // In a metered market, how far the user's account may fall below 0.
    std::optional<Money> credit = {};
    // Its account is given so much; and whether what is left of it goes back before the next.
    std::optional<Money> allowance = {};
    Every every = Every::day;
    bool expires = false;
    // Its jobs run in these hours alone (TimeFrames) of the market's local time; empty: always.
    static constexpr size_t hours_bytes_max = 1024;
    std::string hours = {};
    std::optional<int32_t> reserve = {};  // CPUs that are sold to it ahead, at once
    bool any() const {
        return spend_per_day || jobs || cpus || credit || allowance || reserve || !hours.empty();
    }
    bool operator==(const UserLimits&) const = default;
};

// A project has an account, limits and allowances as a user has, and pays for the jobs of its
// members that name it. Its number is one that no user of a machine has.
inline constexpr uint32_t project_first = 0xf000'0000, project_last = 0xffff'fffd;
constexpr bool is_project(uint32_t uid) { return uid >= project_first && uid <= project_last; }
// A letter, then letters, digits, '-' and '_'; 32 at most.
bool valid_project_name(std::string_view name);
inline constexpr size_t members_max = 10'000;

// Stored while the user has a limit; of a project for good.
struct UserRecord {
    uint32_t uid = 0;
    std::string name;
    UserLimits limits;
    // the day of which all is spent; it stays so until the next one, or a higher limit
    int64_t ended_day = -1;
    int64_t granted = -1;                // the day, week or month of which it has its allowance
    std::vector<uint32_t> members = {};  // of a project, in order
    bool has_member(uint32_t of) const {
        return std::binary_search(members.begin(), members.end(), of);
    }
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

    // In a metered market its account holds so much, credit included, less what is charged since
    // its last receipts. `funded` is that when it was last more: warnings are shares of it.
    std::optional<Money> funds;
    Money funded;
    bool is_empty = false;  // nothing is left of its account, until that gets more
    Money open;             // what its jobs are charged and no receipt has yet
    bool is_full = false;   // no more use can be charged to its account (room_for_use)
    bool owes = false;      // it is a peer's account, which owes as much as it may (SiteCredit)

    TimeFrames frames = {};  // of record.limits.hours
    bool is_closed = false;  // it is outside of these now
    // Whether a place that is sold to it from then on, for so long, lies in its hours.
    bool is_open(int32_t second_of_week, Nanos span) const {
        const int32_t left = frames.to_next_edge(second_of_week);
        return frames.always() ||
               (frames.contains(second_of_week) && (left == 0 || span <= Nanos::from_s(left)));
    }

    // Whether what is charged must end somewhere; whether anything does.
    bool is_counted() const { return record.limits.spend_per_day || funds; }
    bool is_bounded() const { return record.limits.any() || funds; }
    // The day and the account leave so much to be charged.
    Money left() const {
        return funds ? std::min(day_left(), std::max(Money{}, *funds)) : day_left();
    }
    bool account_ends_first() const { return funds && *funds <= day_left(); }
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
