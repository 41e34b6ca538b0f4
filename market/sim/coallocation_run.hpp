// SPDX-License-Identifier: GPL-2.0-or-later
// A run of jobs of several components over clusters, beside the jobs of others (background). Pure:
// time is milliseconds and jumps from event to event; the same input gives the same schedule.
//
// At one instant first jobs end, then the background's jobs come and those that have room start,
// each cluster by itself in order (a local manager serves its own first), then jobs come, then the
// policy acts: when a job has come, or `notice_ms` after processors have become free. The policy
// counts what is idle at that instant. What a job does: overhead_ms, then run_ms (longer in several
// clusters, Terms), with the pauses of moves, freezes and thaws. A pause that is interrupted goes
// on later.
#pragma once

#include "market/sim/coallocation_policy.hpp"

namespace souk::sim::coallocation {

// A job of others, in one cluster. Its run time is known to policies that look at estimates.
struct Local {
    int64_t submit_ms = 0;
    int64_t run_ms = 1;
    uint32_t cluster = 0;
    int64_t cpus = 1;
};

struct World {
    std::vector<Cluster> clusters;
    std::vector<Job> jobs;      // by submit time
    std::vector<Local> locals;  // by submit time
    Terms terms;
    int64_t notice_ms = 0;
    // Above 0: submit times do not count; a job comes whenever fewer than so many wait.
    uint32_t backlog = 0;
};

// A stretch of time in which a job held these processors.
struct Stretch {
    uint32_t job;
    int64_t from_ms, to_ms;
    Allocation where;
};

struct JobOutcome {
    int64_t came_ms = 0, start_ms = 0, end_ms = 0;
    uint32_t moves = 0, freezes = 0;  // moves: of a component
};

struct Outcome {
    std::vector<JobOutcome> jobs;
    std::vector<Stretch> stretches;  // by their end
    std::vector<Stretch> locals;     // of the background, by their start; job: its index
    int64_t last_came_ms = 0, end_ms = 0;
    uint32_t running_max = 0;  // jobs at once
};

// Fails on a job of which the placement makes nothing even when all clusters are empty. The
// policies need it to be asked first.
Status all_fit(const World& world, const Placement& placement);
// Fails on a job or local that is wrong in itself, naming it, and when jobs wait and nothing will
// ever happen. What the policy orders must be possible: else it is a bug.
Result<Outcome> run(const World& world, Policy& policy);

struct Figures {
    double response_s = 0, response_sd_s = 0;  // came to end
    double wait_s = 0, wait_max_s = 0;         // came to start
    double run_s = 0, run_sd_s = 0;            // start to end, less overhead
    double overhead_s = 0;
    double utilisation = 0;         // processors held by the jobs, of all, until the last end
    double background = 0;          // the same of the others
    double moves = 0, freezes = 0;  // of all jobs
    uint32_t running_max = 0;
    double end_s = 0;
};
Figures figures_of(const World& world, const Outcome& outcome);

// Processors held by the jobs, of all, from the first tenth of the time until the last job came:
// with a backlog, the utilisation beyond which waits grow without bound.
double steady_utilisation(const World& world, const Outcome& outcome);

}  // namespace souk::sim::coallocation
