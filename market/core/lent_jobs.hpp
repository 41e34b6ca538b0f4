// SPDX-License-Identifier: GPL-2.0-or-later
// LentJobs: jobs of this site that were given to the market of another one, which says where they
// run there (docs/sites.md). Their homes stay here, and hear this market alone: it passes the
// other's orders on under numbers of its own, as long as the loan lasts, and decides nothing about
// the job meanwhile but to end or stop it. Each loan is on disk before the other site hears of it.
//
// A loan ends when the job has ended, when it has come home (frozen, on its home's disk), when the
// other site does not take it, or when it has waited there for a while. Its last word is said again
// at each connection until the other site has settled: SiteVisit::owed keeps it. A site that is
// silent holds the job up for a while, or not at all if it has ordered nothing about it; the job
// then goes anywhere but there. Each has a number, by which the other market's words are known to
// be of it, and not of one before.
//
// The markets make a job go on trips: there, and back home. So many are made at once at most, and
// then one each time that a span has passed: `trips` of Loan is the time when all are paid off. A
// site where a stay was short or came to nothing has the job rest for a pause that doubles, and one
// that it left lately must gain it twice as much (site_gain.hpp). An operator is not bound by this.
//
// A job that runs here may move there, by hand or for a gain, and one whose image lies here may go
// on there. Until that site's order for it has come it is asked about only (Loan::asked): this
// market goes on deciding about it, and any order of its own, or any end of its run here, takes the
// question back. The other market hears of it as of a job that is frozen here, so that it pays
// nothing there before it has come. It moves back likewise: its place here is cleared first, then
// the other market is asked for the order, whose ticket lets it leave. A move by hand keeps that
// place for it; for a gain it has the one that its bid wins, as a job that waits. So each order
// about a job that is away comes from the market that has it, one at a time.
//
// A report from before an order says where the job was before. It ends no loan as long as the order
// is outstanding. Pure; part of Market.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "market/core/billing.hpp"
#include "market/core/book.hpp"
#include "market/core/job_alarms.hpp"
#include "market/core/market_context.hpp"
#include "market/core/notes.hpp"
#include "market/core/orders.hpp"
#include "market/core/room_claims.hpp"
#include "market/core/site_offer.hpp"
#include "market/core/work_list.hpp"

namespace souk::market {

class LentJobs {
  public:
    // So long a job may wait at another site before it starts there, or is asked about.
    static constexpr Nanos wait_most = Nanos::from_s(30);
    // So long the other site may take to settle what is over.
    static constexpr Nanos settle_most = Nanos::from_s(60);
    // The other market is asked so often for the order that brings a job back.
    static constexpr Nanos ask_again = Nanos::from_s(2);
    // So many trips the markets make with a job at once, and then one in so long.
    static constexpr int64_t trips_at_once = 6;
    static constexpr Nanos trip_apart = Nanos::from_s(7'200);
    // A job rests so long before it goes to the same site again.
    static constexpr Nanos rest_least = Nanos::from_s(60), rest_most = Nanos::from_s(3'600);

    LentJobs(const MarketContext& context, Book& book, Orders& orders, RoomClaims& rooms,
             JobAlarms& alarms, Billing& billing, Notes& notes, WorkList& work)
        : context_(context),
          book_(book),
          orders_(orders),
          rooms_(rooms),
          alarms_(alarms),
          billing_(billing),
          notes_(notes),
          work_(work) {}

    // After a restart.
    void resume(Job& job, Nanos now);
    // Whether the markets may give a job to that site: it is at none, and rests no more.
    bool may_go(const Job& job, const std::string& site, Nanos now) const;
    // Its last stay at that site is over, which has not settled it.
    static bool is_unsettled(const Job& job, const std::string& site);
    // Unix time.
    Nanos rests_until(const Job& job, const std::string& site, Nanos now) const;
    // The speed of the machine where it is, wherever that is.
    int64_t speed_there(const Job& job) const;
    // The sites that it left lately; an empty name stands for its own.
    std::vector<std::string> left_lately(const Job& job, Nanos now) const;
    Status lend(Job& job, const std::string& site, Nanos now);
    // Whether it would go there now: it waits, or nothing keeps it where it is.
    bool may_begin(const Job& job, const std::string& site, Nanos now) const;
    // The others of its gang do not go: a component goes no further, or comes back.
    void give_back(Job& job, const souk::Cause& why);
    // The job is here, and is to move there: to that node, if one is named. `gain`: why the markets
    // want it; empty: an operator does.
    void ask(Job& job, const std::string& site, const NodeName& node, const Reason& gain);
    // Nothing keeps the job, which runs or is frozen to disk, where it is.
    bool may_move(const Job& job) const;
    // The job is here, and the markets move it there; or it runs there, and they move it home, to
    // a node where its bid would win a place. `move`: another node than that must be worth it;
    // nullopt: the operator's program wants it, whatever it gains. Errors: not now.
    Status go(Job& job, const std::string& site, const Reason& gain, Nanos now);
    Status go_home(Job& job, const NodeName& node, const std::optional<SiteMove>& move,
                   const Reason& gain);
    // It is not to move there any more. `why`: the other site does not take it; empty: this market
    // has decided otherwise.
    void take_back(Job& job, const souk::Cause& why);
    // It runs there, and is to move to that node here (Job::once).
    void call_back(const Job& job, const NodeName& node);
    // It is to move back and has no order yet: where.
    const NodeName* comes_back(const Job& job) const;
    // The same while its other site is connected: else its place here is kept for nothing.
    const Node* way_back(const Job& job) const;
    // It comes back for a gain: it is to be placed like a job that waits.
    bool wants_home(const Job& job) const;
    // Its bid has won another place here than it was to have. True: that is worth the move, too,
    // and its order is not asked for yet, so it goes there.
    bool goes_to(const Job& job, const Node& to, Money price);
    // Its place here is clear, so its order is asked for.
    void has_place(const Job& job);
    // It does not win that place any more, and stays where it is.
    void lost_place(Job& job);
    // Its order is over, and it is on no node of that site: the loan is over. True: it was one.
    bool settle(Job& job);
    // A job of another site runs here, which asks that it moves to that node of its own.
    void send_back(Job& job, const Node& to, const std::string& address, Nanos now);
    // Errors, which the other market is told: the job is not there to be ordered, or is to stop.
    // `number`: SiteOrder::number.
    Status may_order(const Job& job, const std::string& site, const Order& order,
                     uint64_t number) const;
    // It has ordered what it may, and the node where the job is to run is known here.
    void pass(Job& job, const Order& order, Nanos now);
    // The other market says what it pays, whether it has settled, or that it does not take it.
    void heard(Job& job, const std::string& site, const SiteNote& note, Nanos now);
    // Its home has reported it.
    void reported(Job& job, Nanos now);
    // Its home says that the order of that number has come to nothing; to be told to the other
    // site, under its number.
    void failed(Job& job, const OrderFailed& failed);
    void look(Nanos now);
    Nanos next() const;
    // This market stops it: by a hold, a limit of its user's, or its budget.
    bool must_stop(const Job& job) const;
    // It is to come home, and goes on nowhere before.
    void recall(Job& job);

    // The other site is to hear this: once each, when it is durable.
    struct Word {
        std::string site;
        SiteJob word;
    };
    struct Failure {
        std::string site;
        OrderFailed failed;
    };
    std::vector<Word> take_words();
    std::vector<Failure> take_failures() { return std::exchange(failures_, {}); }
    // Jobs that are at no other site any more, since the last call.
    std::set<JobId> take_back_home() { return std::exchange(back_home_, {}); }
    std::vector<Send> take_orders() { return std::exchange(orders_out_, {}); }
    // Numbers those of them that go to other sites (Send::number): each is of the stay that it was
    // decided about, be there a new one when it goes.
    void number_stays(std::vector<Send>& words) const;
    // It is connected (again): all that was given to it is told.
    void tell_all(const std::string& site);

  private:
    // A move that has not been ordered yet. Not stored: after a restart it is forgotten.
    struct Wish {
        NodeName node;  // asked: there, or any if it is empty; else here
        Nanos until = {}, again = {};
        bool has_place = false;
        std::string said = {};              // asked: why it waits there
        Reason gain = {};                   // the markets want it, and why; empty: an operator does
        std::optional<SiteMove> move = {};  // home for a gain: what that must be worth
    };
    Loan begun(const Job& job, const std::string& site, bool by_markets) const;
    // `failed`: a stay that came to nothing is one that failed.
    void settled(Loan& loan, bool failed, Nanos now) const;
    void has_come(Job& job, Nanos now);
    void end(Job& job, bool failed = true);
    // It waits no longer for that site to settle.
    void leave(Job& job, bool failed);
    bool heard_of_before(Job& job, const std::string& site, const SiteNote& note);
    void look_at_unsettled(Nanos now);
    void give_up(Job& job, const souk::Cause& why);
    void look_at_wishes(Nanos now);
    void issue(Job& job, Order order, Nanos now);
    SiteJob told(const Job& job, const Loan& loan) const;
    SiteJob told_of_before(const Job& job, const SiteVisit& visit) const;

    const MarketContext& context_;
    Book& book_;
    Orders& orders_;
    RoomClaims& rooms_;
    JobAlarms& alarms_;
    Billing& billing_;
    Notes& notes_;
    WorkList& work_;
    Nanos now_;                     // of the newest look
    std::map<JobId, Nanos> waits_;  // until when they may wait there
    std::map<JobId, Wish> wishes_;
    std::map<JobId, Nanos> unsettled_;  // until when their sites may settle; 0: from the next look
    std::set<JobId> due_;               // to be told of
    std::set<std::pair<JobId, std::string>> due_before_;  // a site is to be told of its last stay
    std::set<JobId> back_home_;
    std::vector<Failure> failures_;
    std::vector<Send> orders_out_;
};

}  // namespace souk::market
