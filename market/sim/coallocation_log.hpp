// SPDX-License-Identifier: GPL-2.0-or-later
// Worlds of jobs that are drawn from a job log, split into components as simulations of
// co-allocation do it: sizes and run times of the log's jobs, drawn with replacement; Poisson
// arrivals; components of at most `limit` processors, as few and as equal as possible; run times
// cut at `run_max_s` (900 s was DAS-2's limit by day). Pure and seeded.
#pragma once

#include "market/sim/coallocation_run.hpp"
#include "market/sim/replay.hpp"

namespace souk::sim::coallocation {

struct LogTerms {
    Kind kind = Kind::unordered;
    int64_t limit = 16;  // of a component; total jobs have one of their whole size
    size_t jobs = 10'000;
    int64_t run_max_s = 900;
    // Offered: work of the jobs as if each ran in one cluster, of all processors.
    double load = 0.5;
    uint32_t backlog = 0;  // above 0: in place of arrivals (World)
    uint64_t seed = 1;
    // false: values of 10 to 60, drawn. true: each job is worth the same to its user, who bids that
    // divided by its size and estimate.
    bool equal_worth = true;
};

// Jobs of the log that would not fit the clusters are left out. An ordered job's components go to
// clusters that are drawn, all different while there are enough.
Result<World> log_world(const SwfTrace& trace, std::vector<Cluster> clusters, const LogTerms& log,
                        const Terms& terms);

}  // namespace souk::sim::coallocation
