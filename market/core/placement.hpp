// SPDX-License-Identifier: GPL-2.0-or-later
// Placement: gives the orders that bring jobs where the solver has them. What does not fit yet
// waits for those that leave; jobs that want each other's places go by way of a freeze of the
// lesser one. Orders leave for all required components of a gang, or for none. Pure; part of
// Market.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "market/core/allocation.hpp"
#include "market/core/book.hpp"
#include "market/core/explain.hpp"
#include "market/core/gang_list.hpp"
#include "market/core/job_alarms.hpp"
#include "market/core/job_reports.hpp"
#include "market/core/lent_jobs.hpp"
#include "market/core/market_context.hpp"
#include "market/core/orders.hpp"
#include "market/core/places.hpp"
#include "market/core/room_claims.hpp"
#include "market/core/settling.hpp"
#include "market/core/solver.hpp"
#include "market/core/suspended_jobs.hpp"
#include "market/core/work_list.hpp"

namespace souk::market {

class Placement {
  public:
    Placement(const MarketContext& context, Book& book, const Places& places, const Solver& solver,
              Orders& orders, RoomClaims& rooms, JobAlarms& alarms, const Allocation& allocation,
              GangList& gangs, SuspendedJobs& suspended, const Explain& explain,
              JobReports& reports, const Settling& settling, LentJobs& lent, WorkList& work)
        : context_(context),
          book_(book),
          places_(places),
          solver_(solver),
          orders_(orders),
          rooms_(rooms),
          alarms_(alarms),
          allocation_(allocation),
          gangs_(gangs),
          suspended_(suspended),
          explain_(explain),
          reports_(reports),
          settling_(settling),
          lent_(lent),
          work_(work) {}

    // Looks at all jobs that are pending, those with the highest bids first.
    void place(Nanos now, Outputs& out);

  private:
    bool place_one(Job& job, Nanos now, Outputs& out);
    bool place_lent(Job& job, Nanos now, Outputs& out);
    bool place_at(Job& job, const Node& target, Nanos now, Outputs& out);
    bool place_gang(Job& job, Nanos now, Outputs& out);
    void make_room(const Job& blocked, const Node& node, Nanos now, Outputs& out);
    bool will_give_room(Node& node);
    void break_cycle(const Job& blocked, Nanos now, Outputs& out);
    void issue(Job& job, Order::Kind kind, const NodeName& node, const Reason& reason, Nanos now,
               Outputs& out, bool stand = false);

    const MarketContext& context_;
    Book& book_;
    const Places& places_;
    const Solver& solver_;
    Orders& orders_;
    RoomClaims& rooms_;
    JobAlarms& alarms_;
    const Allocation& allocation_;
    GangList& gangs_;
    SuspendedJobs& suspended_;
    const Explain& explain_;
    JobReports& reports_;
    const Settling& settling_;
    LentJobs& lent_;
    WorkList& work_;
    std::set<std::string> gangs_seen_;           // by the present place()
    std::vector<const Job*> wants_room_;         // jobs that did not fit where the solver has them
    uint64_t room_round_ = 0, room_search_ = 0;  // of will_give_room()
};

}  // namespace souk::market
