// SPDX-License-Identifier: GPL-2.0-or-later
// What an operator may set of a solver. Plain values; Solver::set_options checks them.
#pragma once

#include <string>

#include "kernel/base/money.hpp"
#include "kernel/base/time.hpp"

namespace souk::market {

struct SolverOptions {
    std::string algorithm = "greedy_migration";
    std::string pricing = "critical";
    int32_t k_permille = 500;  // uniform: 0 gives the buyers all of the gap, 1000 the providers

    // Migration-awareness (every algorithm but proportional_share). All zero: the plain algorithm.
    // a move must pay for itself within this; 0: every move to a better place is made
    Nanos horizon;
    int64_t link_bytes_per_s = 100'000'000;  // what a move's pause is reckoned with
    Money byte_cost_per_gb;                  // what carrying 10^9 bytes costs, beside the pause
    // nobody who was just placed is moved or displaced before this has passed; 0: off
    Nanos min_stay;
    int32_t moves_max = 0;  // at most this many voluntary moves in any moves_window; 0: no cap
    Nanos moves_window = Nanos::from_s(60);

    Nanos quantum = Nanos::from_s(10);  // proportional_share: the turn of a job is this long
};

}  // namespace souk::market
