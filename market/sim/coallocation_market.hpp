// SPDX-License-Identifier: GPL-2.0-or-later
// The market with moves as a policy for jobs of several components (coallocation_policy.hpp): what
// greedy migration makes of gangs. Not the daemon's solver, which knows single jobs: the same order
// of decisions, with all components of a job or none.
//
// At each event the jobs in order of value take their places. A job that runs counts `margin` /
// 1000 times its value, so that nobody is frozen for little. Who does not fit beside those before
// it gets room by moves of their components, if that is enough; whom a more valuable one needs the
// place of is moved, or else frozen as a whole. A job apart is drawn together in one cluster when
// what it wins is more than four moves. Nobody starves: who has waited and lain frozen for longer
// than patience_ms and ten times its estimate goes before all that have not, by arrival, and is
// frozen no more for them.
#pragma once

#include "market/sim/coallocation_policy.hpp"

namespace souk::sim::coallocation {

struct MarketTerms {
    int64_t margin = 1500;
    int64_t patience_ms = 3600 * 1000;
};

// `placement` (make_near_placement, say) must outlive it.
std::unique_ptr<Policy> make_market(const Placement& placement, const MarketTerms& terms);

}  // namespace souk::sim::coallocation
