// SPDX-License-Identifier: GPL-2.0-or-later
// HomeMachines: the machines of a Home that each know one side of single jobs. They do not know
// each other but for what a signature says. HomeSteps puts their steps in order.
#pragma once

#include <optional>
#include <string>

#include "agentd/core/home_budget.hpp"
#include "agentd/core/home_checkpoints.hpp"
#include "agentd/core/home_claims.hpp"
#include "agentd/core/home_clock.hpp"
#include "agentd/core/home_delays.hpp"
#include "agentd/core/home_ends.hpp"
#include "agentd/core/home_evacuations.hpp"
#include "agentd/core/home_expels.hpp"
#include "agentd/core/home_gangs.hpp"
#include "agentd/core/home_groups.hpp"
#include "agentd/core/home_leases.hpp"
#include "agentd/core/home_limits.hpp"
#include "agentd/core/home_moves.hpp"
#include "agentd/core/home_orders.hpp"
#include "agentd/core/home_records.hpp"
#include "agentd/core/home_reports.hpp"
#include "agentd/core/home_runs.hpp"
#include "agentd/core/home_signals.hpp"
#include "agentd/core/home_time_limits.hpp"
#include "agentd/core/home_wakes.hpp"

namespace souk {

class JsonWriter;

struct HomeMachines {
    HomeMachines(const NodeName& node, const HomeLimits& limits);
    HomeMachines(const HomeMachines&) = delete;
    HomeMachines& operator=(const HomeMachines&) = delete;

    // When one of them wants to look at the job.
    Nanos due(const HomeJob& job) const;
    // The market has closed the job's account: it is a record and no more.
    void forget(uint64_t seq);
    // Describes what they hold of the job: keys and values of an open JSON object.
    void describe(const HomeJob& job, Nanos now, JsonWriter& j) const;

    HomeRecords records;
    HomeOrders orders;
    HomeRuns runs;
    HomeMoves moves;
    HomeCheckpoints checkpoints;
    HomeEvacuations evacuations;
    HomeClaims claims;
    HomeClock clock;
    HomeBudget budget;
    HomeLeases leases;
    HomeExpels expels;
    HomeWakes wakes;
    HomeSignals signals;
    HomeEnds ends;
    HomeTimeLimits time_limits;
    HomeDelays delays;
    HomeGroups groups;
    HomeGangs gangs;
    HomeReports reports;
};

}  // namespace souk
