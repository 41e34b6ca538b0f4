// SPDX-License-Identifier: GPL-2.0-or-later
// A job log through the market's own solver (market_run.hpp) with one provider of N CPUs: how
// replay runs the policies that have no path of their own, and what the special path of greedy
// migration is checked and measured against.
//
// A job's memory is stood for by the seconds that its freeze takes (ReplayTerms::carry_s), at 1 MB
// a second. Other than the special path, the solver takes no decision about a job while it is
// frozen or thawed (market_run.hpp), and the step in which the end of a thaw is told is lost; where
// freezing takes no time the two agree job by job.
#pragma once

#include <span>

#include "kernel/base/result.hpp"
#include "market/core/solver.hpp"
#include "market/sim/replay.hpp"

namespace souk::sim {

// Users are those of the log; a job without one is a user of its own. Fails as run_market() does.
Result<Schedule> replay_with_solver(const SwfTrace& trace, std::span<const ReplayJob> jobs,
                                    int64_t cpus, const ReplayTerms& terms,
                                    const market::SolverOptions& options);

}  // namespace souk::sim
