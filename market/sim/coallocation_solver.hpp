// SPDX-License-Identifier: GPL-2.0-or-later
// The market's own solver as a policy for jobs of several components (coallocation_policy.hpp):
// each cluster is a machine, each job a gang or, with one component, a single job, which bids its
// value. At each event the solver decides anew about all of them, told where they are. Components
// may be in any cluster: it does not know requests that name one, nor flexible ones, and must not
// be asked for these. Who has waited and lain frozen for longer than patience_ms and ten times its
// estimate bids more than all that have not, by arrival.
#pragma once

#include "market/sim/coallocation_run.hpp"

namespace souk::sim::coallocation {

// Makes a policy that asks the market's own solver. The policy is for a run over this world, which
// must outlive it. Fails if a job names a cluster, is flexible, or has more components than a gang
// may have, or if a cluster is too large for the solver.
Result<std::unique_ptr<Policy>> make_solver_policy(const World& world,
                                                   int64_t patience_ms = 3600 * 1000);

}  // namespace souk::sim::coallocation
