// SPDX-License-Identifier: GPL-2.0-or-later
// Replay: a job log straight through a scheduling policy on one machine of N processors. Pure
// functions over arrays: time is whole seconds, it jumps from event to event, and the same input
// gives the same schedule on every machine.
//
// Conventions (workload_of() applies the first six):
// - Jobs are taken by submit time, equal ones in the order of the log.
// - Processors: `requested` is the requested number, or the allocated one where none was requested;
// `allocated` is the
//   other way round. A job with neither is dropped.
// - A submit time or a run time of -1 (unknown) drops the job. A run time of 0 is less than the
// log's resolution and
//   counts as 1 s.
// - A job that needs more processors than the machine has is dropped. What was dropped, and why, is
// counted.
// - Every job runs as long as it did in the log, also past the time that its user requested:
// nothing is killed.
// - Estimates: `user` is the requested time, raised to the run time where it is shorter, and the
// run time where the log
//   has none; `exact` is the run time. Only EASY looks at estimates.
// - At one instant, first the jobs that end release their processors, then the arrivals queue up,
// then the policy acts.
// - Metrics: wait is end - submit - run (with preemption: all time not spent running); slowdown is
//   (end - submit) / run; bounded slowdown is max(1, (end - submit) / max(run, 10 s)); makespan is
//   from the first
//   submit to the last end; utilisation is the work of all jobs (run x processors) over N x
//   makespan. Means are over
//   all jobs kept.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernel/base/money.hpp"
#include "market/sim/distribution.hpp"
#include "market/sim/swf.hpp"

namespace souk::sim {

enum class Procs { requested, allocated };
enum class Estimates { user, exact };

struct ReplayJob {
    int64_t submit_s = 0;
    int32_t run_s = 0;       // at least 1
    int32_t estimate_s = 0;  // at least run_s
    int32_t procs = 0;       // 1 to the machine's
    uint32_t source = 0;     // index in the trace's jobs
};

struct Dropped {
    uint32_t unknown_submit = 0, unknown_run = 0, no_procs = 0, too_large = 0;
    uint32_t total() const { return unknown_submit + unknown_run + no_procs + too_large; }
};

struct Workload {
    std::vector<ReplayJob> jobs;  // by submit time
    Dropped dropped;
};

// The jobs of a trace under the conventions above, for a machine of `cpus` processors (cpus >= 1).
Workload workload_of(const SwfTrace& trace, int64_t cpus, Procs procs, Estimates estimates);

struct Schedule {
    std::vector<int64_t> end_s;  // of each job, in the order of the jobs
    uint64_t migrations = 0;     // moves of a running job's process to another processor
    uint64_t freezes = 0;        // a freeze and a thaw count one each
};

// First come, first served: a job starts when every job before it has started and its processors
// are free. Never backfills. O(n log r) for r running jobs.
Schedule replay_fcfs(std::span<const ReplayJob> jobs, int64_t cpus);

// EASY backfilling (Lifka, 'The ANL/IBM SP scheduling system', JSSPP 1995; Mu'alem and Feitelson,
// IEEE TPDS 12(6), 2001): jobs start in order while they fit. The first that does not gets a
// reservation: the shadow time, at which, by the estimates, enough processors will be free, and the
// extra processors, free then beyond its need. Each later job in order that fits now starts if it
// ends by the shadow time (by its estimate) or needs only extra processors.
Schedule replay_easy(std::span<const ReplayJob> jobs, int64_t cpus);

// The data that the market's policies need and the log lacks. A log has no prices, so values are
// drawn.
struct ReplayTerms {
    std::vector<Money> value;  // per job, in the order of the jobs
    // time that a freeze, and a thaw, of the job takes; empty: none does
    std::vector<int32_t> carry_s;
};
// Values from the distribution (integer units, at least 1) and the seed. A job's memory is what the
// log says it used, or else requested, per processor, else `memory_mb`, times its processors; at
// `disk_mb_per_s` (0: infinitely fast) it is written by a freeze and read by a thaw, in whole
// seconds rounded up.
ReplayTerms terms_of(const SwfTrace& trace, const Workload& workload, const Distribution& values,
                     uint64_t seed, int64_t disk_mb_per_s, int64_t memory_mb);

// Greedy migration (market/core/allocator.hpp) on one machine: at every moment the jobs in order of
// value, then arrival, take their processors, each that fits beside those before it; who no longer
// fits is frozen, and thawed when it fits again. A freeze releases the processors at once. A thaw
// holds them from its beginning; it waits for the job's freeze to end, then takes as long, and then
// the job goes on. A job may be displaced while it is thawed. Each end and arrival costs a pass
// over the summaries of blocks of 32 active jobs. `cpus` below 2^31 - 1.
Schedule replay_greedy_migration(std::span<const ReplayJob> jobs, int64_t cpus,
                                 const ReplayTerms& terms);

// Load balancing without prices, as MOSIX did it: every job runs from its arrival, its processes
// are spread over the processors and time-share them. While no more processes than processors are
// there each has one to itself; else each progresses at (processors / processes) of full speed: the
// limit of even loads. A job ends at the first whole second at which its work is done. Arrivals go
// to the least loaded processors; when ends leave loads that differ by two, processes of the
// fullest move to the emptiest, and each such move is a migration. O(processors of the job) for
// each end.
Schedule replay_balance(std::span<const ReplayJob> jobs, int64_t cpus);

struct ReplayMetrics {
    uint64_t jobs = 0;
    double mean_wait_s = 0, mean_slowdown = 0, mean_bounded_slowdown = 0;
    int64_t makespan_s = 0;
    double utilisation = 0;
};

// Zeroes when there is no job.
ReplayMetrics metrics_of(std::span<const ReplayJob> jobs, const Schedule& schedule, int64_t cpus);

}  // namespace souk::sim
