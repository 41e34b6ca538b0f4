// SPDX-License-Identifier: GPL-2.0-or-later
// HomeReports: a job as its Home tells the market of it: from its record, and from what the
// machines of the Home know of it beside that. Part of Home.
#pragma once

#include "agentd/core/home_orders.hpp"
#include "agentd/core/home_turn.hpp"

namespace souk {

class HomeCheckpoints;
class HomeClock;
class HomeEvacuations;
class HomeGangs;
class HomeGroups;
class HomeRecords;
class HomeRuns;
class HomeDelays;

class HomeReports final : public JobReporter {
  public:
    HomeReports(const HomeRuns& runs, const HomeCheckpoints& checkpoints, const HomeClock& clock,
                const HomeGroups& groups, const HomeGangs& gangs, const HomeRecords& records,
                const HomeEvacuations& evacuations, const HomeDelays& tries,
                const HomeOrders& orders)
        : runs_(runs),
          checkpoints_(checkpoints),
          clock_(clock),
          groups_(groups),
          gangs_(gangs),
          records_(records),
          evacuations_(evacuations),
          delays_(tries),
          orders_(orders) {}
    JobReport report_of(const HomeJob& job, Nanos now) const override;
    bool is_superseded(const HomeJob& job) const override {
        return orders_.pending(job) != nullptr;
    }

  private:
    const HomeRuns& runs_;
    const HomeCheckpoints& checkpoints_;
    const HomeClock& clock_;
    const HomeGroups& groups_;
    const HomeGangs& gangs_;
    const HomeRecords& records_;
    const HomeEvacuations& evacuations_;
    const HomeDelays& delays_;
    const HomeOrders& orders_;
};

}  // namespace souk
