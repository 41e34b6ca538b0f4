// SPDX-License-Identifier: GPL-2.0-or-later
// UserDays: when users have spent what they may spend a day, at the rates of now, and how far the
// rest of the day lets each of their jobs run while this market is silent. Pure; part of Market,
// which charges the jobs and stops them when a day is over.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "market/core/market_state.hpp"

namespace souk::market {

class UserDays {
  public:
    // The homes of the user's jobs.
    class Homes {
      public:
        virtual bool is_reachable(const Job& job) const = 0;
        // The cost to which the day lets it run (Job::noted_day) is another.
        virtual void tell(Job& job) = 0;

      protected:
        ~Homes() = default;
    };

    // Something changed of the user: what was charged, a limit, a rate, who runs.
    void changed(uint32_t uid) { due_.insert(uid); }
    // The user has too little left to run for.
    void nothing_left(uint32_t uid) { over_.insert(uid); }
    // Those of whom something changed, once.
    std::vector<uint32_t> take_due();
    // Whether its jobs matter to reckon(): it has a limit, or its jobs' homes know of one that it
    // had.
    bool looks_at_jobs(const User& user) const;
    // One of them. `claiming`: its jobs that run or are on their way to, if they matter. `spent`:
    // its day is over already.
    void reckon(const User& user, const std::vector<Job*>& claiming, bool spent, Homes& homes,
                Nanos now);

    // A user whose day is over by now, once; nullopt: none.
    std::optional<uint32_t> take_ended(Nanos now);
    // When a day is over next; never(): none.
    Nanos next() const { return ends_.empty() ? Nanos::never() : ends_.begin()->first; }

  private:
    struct State {
        Nanos end = Nanos::never();  // when all is spent, if nothing changes
        bool shared = false;         // its jobs' homes know of a limit of the day
    };
    void share(const User& user, const std::vector<Job*>& claiming, bool spent, Homes& homes,
               Nanos now);

    std::map<uint32_t, State> users_;
    std::set<uint32_t> due_, over_;
    std::set<std::pair<Nanos, uint32_t>> ends_;
};

}  // namespace souk::market
