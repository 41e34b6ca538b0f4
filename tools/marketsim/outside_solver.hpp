// SPDX-License-Identifier: GPL-2.0-or-later
// Finds by its name who decides in a simulated market: an algorithm of the market's solver, a
// queueing policy, or anybody's program that speaks the solver's text protocol
// (market/core/solver_protocol.hpp) on stdin and stdout.
//
// A program is told what happens as it happens (ap, dp, aj, dj, jmd, jfd; `jmd` after a start too),
// then `time`, `go`, `alloc` and `info`. Its answer is a line a job that is to go elsewhere
// (provider 0: suspend), and ends at the first line that is not of two numbers: what it says to
// `info`. Ids are those of the files. It is asked when something happens, and ended when the run
// ends.
#pragma once

#include <string>

#include "market/sim/market_run.hpp"

namespace souk::tools {

// Sets who decides. An error names those there are.
Status set_decider(sim::MarketRunOptions& options, const std::string& name);

}  // namespace souk::tools
