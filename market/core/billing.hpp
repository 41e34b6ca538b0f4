// SPDX-License-Identifier: GPL-2.0-or-later
// Billing: what jobs are charged for their run time, by whose word, and when that becomes a
// receipt. A job pays its price for the time that it ran, by its home's clock. While it runs the
// market reckons with its own clock, and puts right what messages took when the home reports the
// sum. Each micro-unit that a job pays is credited to the provider it ran on in the same step. What
// a place has not measured is given back (use_check.hpp). Pure; part of Market.
#pragma once

#include <utility>
#include <vector>

#include "market/core/bill.hpp"
#include "market/core/book.hpp"
#include "market/core/job_alarms.hpp"
#include "market/core/ledger.hpp"
#include "market/core/market_context.hpp"
#include "market/core/notes.hpp"
#include "market/core/use_check.hpp"
#include "market/core/user_days.hpp"

namespace souk::market {

class Billing {
  public:
    // A home and a place did not agree on how long a job has run.
    struct Differ {
        JobId job;
        use_check::Difference what;
    };

    Billing(const MarketContext& context, Book& book, Ledger& ledger, UserDays& days, Notes& notes,
            JobAlarms& alarms)
        : context_(context),
          book_(book),
          ledger_(ledger),
          days_(days),
          notes_(notes),
          alarms_(alarms) {}

    // After a restart. Records of a market that kept no receipts are brought forward: what each
    // job has cost and each provider has earned.
    void open_ledger();
    // Then, when all jobs are known: sums up what was charged.
    void count_use();
    // Charges the run time up to `ran`, or takes back what was charged beyond it, and credits the
    // provider that the job ran on. Returns `ran`.
    Nanos account_until(Job& job, Nanos ran, Nanos now);
    // The same up to now, if the job runs.
    void account_running(Job& job, Nanos now) {
        if (job.run_since != Nanos::never()) account_until(job, bill::run_time(job, now), now);
    }
    // Makes a receipt of what was charged since the job's last one.
    void close_tab(Job& job, Nanos now);
    // After a report. `before`: the report that it replaced; `ran`: the run time that the market
    // reckoned with until now.
    void clock(Job& job, const JobReport& before, Nanos ran, Nanos now);
    // The job runs nowhere that the market knows of. It pays where it was for what it has run.
    void stop_clock(Job& job, Nanos ran, Nanos now);
    // False: the job pays that price already.
    bool set_price(Job& job, Money price, Nanos now);
    // A place and a home do not agree on a stay: what the place has not measured is given back.
    void take_back(Job& job, const use_check::Difference& difference, Nanos now);
    // The same for stays of which both have said all.
    void settle_use(Job& job, Nanos now);

    // The users whose accounts have become full, or are so no more, since this was last asked.
    bool has_turned() const { return !turned_.empty(); }
    std::vector<uint32_t> take_turned() { return std::exchange(turned_, {}); }
    // The differences since this was last asked.
    std::vector<Differ> take_differences() { return std::exchange(differ_, {}); }

  private:
    Money room_for(const User& user) const;
    void let_go_on();
    void spend(User& user, Money cost);
    void run_at(Job& job, const NodeName& node, Nanos now);
    bool settle_move(Job& job, Nanos total, Nanos now);

    const MarketContext& context_;
    Book& book_;
    Ledger& ledger_;
    UserDays& days_;
    Notes& notes_;
    JobAlarms& alarms_;
    std::vector<Differ> differ_;
    Money paid_;  // for use, by all jobs that ever were
    std::set<uint32_t> full_ones_;
    std::vector<uint32_t> turned_;
};

}  // namespace souk::market
