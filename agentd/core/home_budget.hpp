// SPDX-License-Identifier: GPL-2.0-or-later
// HomeBudget: when what a job may cost ends, by its own budget and by its user's limit of a day.
// First it warns, then it says that the job is to be frozen. It goes by the price and the cost that
// the market told last. Part of Home, which freezes the job.
//
// The market looks after budgets itself. While it is there this node waits a moment longer, so that
// a job is frozen once; while it is not, no job runs longer than its budget pays for.
#pragma once

#include <map>
#include <string>

#include "agentd/core/home_turn.hpp"

namespace souk {

class HomeBudget {
  public:
    // Little is left when it is less than warn_permille of all, or lasts no longer than warn_span.
    HomeBudget(int64_t warn_permille, Nanos warn_span)
        : warn_permille_(warn_permille), warn_span_(warn_span) {}

    void market_is_up(bool up) { market_is_up_ = up; }
    // The market's word of the day of the job's user: how far this job may go by itself.
    void take_day(HomeJob& job, const JobNote& note);

    // When a warning is due, or the end; never(): it does not run, or may cost what it likes.
    Nanos due(const HomeJob& job) const;
    // To be called when that is due. Says what there is to say; true: it is to be frozen now.
    bool ends(const HomeJob& job, const HomeTurn& turn);
    // After it was frozen or stopped for that: why, for people.
    void tell_why(const HomeJob& job, const HomeTurn& turn) const;
    void forget(uint64_t seq) { jobs_.erase(seq); }

  private:
    struct State {
        Money warned;             // the budget of which it was said that it ends soon
        bool day_warned = false;  // of the end of its user's day
        // it was frozen for one of them, which may fail: not again before
        Nanos again{INT64_MIN / 2};
        std::string spent;  // which of them, for people
    };
    struct Dues {
        Nanos budget = Nanos::never(), day = Nanos::never();
    };
    Dues dues(const HomeJob& job) const;
    bool budget_ends(const HomeJob& job, const HomeTurn& turn);
    bool day_ends(const HomeJob& job, const HomeTurn& turn);

    int64_t warn_permille_;
    Nanos warn_span_;
    bool market_is_up_ = false;
    std::map<uint64_t, State> jobs_;
};

}  // namespace souk
