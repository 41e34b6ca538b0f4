// SPDX-License-Identifier: GPL-2.0-or-later
// LentJobs: jobs of this site that were given to the market of another one, which says where they
// run there (docs/sites.md). Their homes stay here, and hear this market alone: it passes the
// other's orders on under numbers of its own, as long as the loan lasts, and decides nothing about
// the job meanwhile but to end or stop it. Each loan is on disk before the other site hears of it.
//
// A loan ends when the job has ended, when it has come home (frozen, on its home's disk), when the
// other site does not take it, or when it has waited there for a while. Its last word is said again
// at each connection until the other site has settled. A job goes to each site once. Pure; part of
// Market.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "market/core/billing.hpp"
#include "market/core/book.hpp"
#include "market/core/job_alarms.hpp"
#include "market/core/notes.hpp"
#include "market/core/orders.hpp"
#include "market/core/room_claims.hpp"
#include "market/core/site_offer.hpp"
#include "market/core/work_list.hpp"

namespace souk::market {

class LentJobs {
  public:
    // So long a job may wait at another site before it starts there.
    static constexpr Nanos wait_most = Nanos::from_s(30);

    LentJobs(Book& book, Orders& orders, RoomClaims& rooms, JobAlarms& alarms, Billing& billing,
             Notes& notes, WorkList& work)
        : book_(book),
          orders_(orders),
          rooms_(rooms),
          alarms_(alarms),
          billing_(billing),
          notes_(notes),
          work_(work) {}

    // After a restart.
    void resume(const Job& job, Nanos now);
    // Whether a job may go there: it has not been there, and is at none.
    static bool may_go(const Job& job, const std::string& site);
    Status lend(Job& job, const std::string& site, Nanos now);
    // Errors, which the other market is told: the job is not there to be ordered, or is to stop.
    Status may_order(const Job& job, const std::string& site, const Order& order) const;
    // It has ordered what it may, and the node where the job is to run is known here.
    void pass(Job& job, const Order& order, Nanos now);
    // The other market says what it pays, whether it has settled, or that it does not take it.
    void heard(Job& job, const std::string& site, const SiteNote& note, Nanos now);
    // Its home has reported it.
    void reported(Job& job, Nanos now);
    // Its home says that the order of that number has come to nothing; to be told to the other
    // site, under its number.
    void failed(const Job& job, const OrderFailed& failed);
    void look(Nanos now);
    Nanos next() const;
    // This market stops it: by a hold, a limit of its user's, or its budget.
    bool must_stop(const Job& job) const;
    // It is to come home, and goes on nowhere before.
    void recall(Job& job);

    // The other site is to hear this: once each, when it is durable.
    struct Word {
        std::string site;
        JobReport report;
    };
    struct Failure {
        std::string site;
        OrderFailed failed;
    };
    std::vector<Word> take_words();
    std::vector<Failure> take_failures() { return std::exchange(failures_, {}); }
    std::vector<Send> take_orders() { return std::exchange(orders_out_, {}); }
    // It is connected (again): all that was given to it is told.
    void tell_all(const std::string& site);

  private:
    void end(Job& job);
    static JobReport told(const Job& job);

    Book& book_;
    Orders& orders_;
    RoomClaims& rooms_;
    JobAlarms& alarms_;
    Billing& billing_;
    Notes& notes_;
    WorkList& work_;
    std::map<JobId, Nanos> waits_;  // until when they may wait there
    std::set<JobId> due_;           // to be told of
    std::vector<Failure> failures_;
    std::vector<Send> orders_out_;
};

}  // namespace souk::market
