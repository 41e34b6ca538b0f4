// SPDX-License-Identifier: GPL-2.0-or-later
// JobReports: what homes report of their jobs and of orders, what places say of them, and what
// becomes of a job by time alone.
//
// The word of a job's home about its place counts where it is backed (claims.hpp): the market has
// ordered the job there, or the place says that it has it. An order backs it for a while only: when
// the job is steady there, or the order is old, a place that tells how long its guests run must
// have told of this one. A job that is not backed takes no room and pays nothing; after a while its
// home is told to freeze it to its disk, from where the market may place it. Jobs for which the
// book has no room are turned away, and their homes are asked for them later. Pure; part of Market.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "market/core/bidding.hpp"
#include "market/core/billing.hpp"
#include "market/core/book.hpp"
#include "market/core/job_alarms.hpp"
#include "market/core/job_waits.hpp"
#include "market/core/market_context.hpp"
#include "market/core/notes.hpp"
#include "market/core/orders.hpp"
#include "market/core/refusals.hpp"
#include "market/core/room_claims.hpp"
#include "market/core/submit_filter.hpp"
#include "market/core/suspended_jobs.hpp"
#include "market/core/user_funds.hpp"
#include "market/core/work_list.hpp"

namespace souk::market {

class JobReports {
  public:
    JobReports(const MarketContext& context, Book& book, const Solver& solver, Orders& orders,
               Notes& notes, RoomClaims& rooms, JobAlarms& alarms, JobWaits& waits,
               Billing& billing, UserFunds& funds, Bidding& bids, SuspendedJobs& suspended,
               WorkList& work, SubmitFilter& filter)
        : context_(context),
          book_(book),
          solver_(solver),
          orders_(orders),
          notes_(notes),
          rooms_(rooms),
          alarms_(alarms),
          waits_(waits),
          billing_(billing),
          funds_(funds),
          bids_(bids),
          suspended_(suspended),
          work_(work),
          filter_(filter) {}

    // A home reports a job, or that an order has failed. An error: it breaks the rules (another
    // home's job); nothing has changed.
    Status take(const NodeName& home, const JobReport& report, Nanos now);
    Status order_failed(const NodeName& home, const OrderFailed& failed, Nanos now);
    // A place tells what it has measured of jobs that their homes let be charged for, and how far
    // it is with sending jobs away.
    void take_use(const NodeName& place, const UseReport& report, Nanos now);

    // A job that was loaded goes on where the last life of the market left it.
    void resume(Job& job, Nanos now);
    // A place is connected: it may confirm jobs that wait for its word, and is soon to tell of
    // those that are there.
    void place_came(const Node& place, Nanos now);
    // The home of the job is connected, or has gone. What it reported before counts no more.
    void home_came(Job& job, Nanos now);
    void home_left(Job& job);
    void connection_ended(const NodeName& home) { refusals_.gone(home); }
    // The job was ordered there just now. The place is to tell of it when its memory may have come.
    void wants_proof_later(Job& job, const Node& to, Nanos now);
    // Time has changed something about the job.
    void alarm(Job& job, Nanos now);
    // Nobody answers for the job any more: it has ended as far as the market is concerned.
    void lose_home(Job& job, Nanos now);
    // Has jobs looked at again whose programs some nodes lack.
    void try_lacking();
    size_t lacking() const { return lacking_.size(); }
    // Asks homes for jobs that were turned away.
    void ask_again(Nanos now, Outputs& out);
    Nanos next_ask() const { return refusals_.next(); }
    uint64_t refused_of_home(const NodeName& home) const { return refusals_.count(home); }

  private:
    Result<Job*> let_in(const NodeName& node, const JobReport& report, Nanos now);
    void turn_away(const JobReport& report, const Error& why, Nanos now);
    void note_running(Job& job);
    void resume_backing(Job& job, Nanos now);
    void home_forgot(Job& job, JobReport before, Nanos ran, Nanos now);
    void note_lacking(Job& job);
    void finish(Job& job, Nanos now);
    void look_at_backing(Job& job, Nanos now);
    void back_by(const JobId& id, Nanos now);
    void wants_proof_soon(Job& job, Nanos now);
    void note_steady(Job& job, Nanos now);
    void demand_proof(Job& job, Nanos now);

    const MarketContext& context_;
    Book& book_;
    const Solver& solver_;
    Orders& orders_;
    Notes& notes_;
    RoomClaims& rooms_;
    JobAlarms& alarms_;
    JobWaits& waits_;
    Billing& billing_;
    UserFunds& funds_;
    Bidding& bids_;
    SuspendedJobs& suspended_;
    WorkList& work_;
    SubmitFilter& filter_;
    std::set<std::pair<NodeName, JobId>> awaited_;  // Job::awaits
    std::set<JobId> lacking_;  // jobs that wait and whose program some nodes lack
    Refusals refusals_;
};

}  // namespace souk::market
