// SPDX-License-Identifier: GPL-2.0-or-later
// Queueing policies for a simulated market that go by true run times, and so are no algorithms of
// the solver (market/core/first_come.cpp has the queues that do not). Jobs wait and are never
// frozen or moved; only a provider that leaves sends its jobs back, to their place in the queue.
// Each job starts on the first provider by speed, then reserve, that has room for it and whose
// reserve is not above its value. A job that no provider there could hold is passed over.
//   easy   backfilling by arrival (replay.hpp has the source): the first job that finds no room
//          has a reservation on the provider that can hold it earliest, by the true run times of
//          those that run; a later job starts at once if it does not delay that: elsewhere, or if
//          it ends by then, or beside the reservation.
//   sjf    the same, but jobs wait by run time, the shortest first.
//   wfp    the same, but jobs wait by CPUs x (wait / run time)^3, the greatest first (WFP3 of W.
//          Tang, Z. Lan, N. Desai and D. Buettner: Fault-aware, utility-based job scheduling on
//          Blue Gene/P systems, CLUSTER 2009).
//   conservative   backfilling in which each waiting job has a reservation (A. W. Mu'alem and D. G.
//          Feitelson, IEEE Trans. Parallel Distrib. Syst. 12(6), 2001): by arrival, each where it
//          can start earliest without a delay of those before it.
// On one provider easy is replay_easy with exact estimates.
#pragma once

#include <string_view>

#include "market/sim/decider.hpp"

namespace souk::sim {

inline constexpr std::string_view queue_policies[] = {"easy", "sjf", "wfp", "conservative"};

// Empty if there is no such policy.
MakeDecider queue_policy(std::string_view name);
// Such a policy goes by run times that a real scheduler has only its users' estimates of.
bool knows_run_times(std::string_view name);

}  // namespace souk::sim
