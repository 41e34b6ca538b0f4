// SPDX-License-Identifier: GPL-2.0-or-later
// The reason of a change that a solver made, such as "displaced by job n1.12 at 200; 201 would win
// it back". Figures are those of the present state of the solver. Pure.
#pragma once

#include "market/core/reason.hpp"
#include "market/core/solver.hpp"
#include "market/core/types.hpp"

namespace souk::market {

// `names`: how the caller calls its jobs and providers.
Reason change_reason(const Solver& solver, const Change& change, const Names& names);

}  // namespace souk::market
