// SPDX-License-Identifier: GPL-2.0-or-later
// MarketRun: jobs and providers through the market's own Solver, event by event. Pure: time is
// whole seconds and jumps from event to event, with the result of the loop that takes one step a
// second (the tests hold that loop).
//
// One step, at second t:
// 1. every running job has advanced by its provider's speed / 100 standard seconds for each second
// since it runs; away from its files, by the part of that in which it does not wait for them
// (move_costs.hpp; at least a hundredth of a standard second);
// 2. the solver is told of finished jobs, finished moves, freezes and thaws, leaving and joining
// providers, arrivals;
// 3. if it was told anything, or had asked to be called by now, it solves, and its changes are
// made:
//    - a start takes no time;
//    - a freeze takes ceil(memory / disk speed) seconds. The job stops and its place is free at
//      once;
//    - a thaw takes as long, a move ceil(memory / network speed). The job holds its new place from
//      the beginning. The end is told in step t + duration, and the job advances from the step
//      after that: the step of the telling is lost. (So in the published example job 4, frozen at
//      10, thawed at 50 for 1 s, runs its 40 s from 52: 92 s.)
//    - without memory there is nothing to carry: no time, no step lost.
// With `two_stage` a suspended job stands in memory, which takes no time, and goes on at once where
// it stands; elsewhere it is moved. What has to go to disk is frozen from then on. Until such an
// operation ends the solver takes no other decision about the job (it is pinned). When its provider
// leaves meanwhile, the operation is given up and the solver decides anew.
// run_rates.hpp says what they pay meanwhile.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernel/base/money.hpp"
#include "kernel/base/result.hpp"
#include "market/core/messages.hpp"
#include "market/core/solver.hpp"
#include "market/sim/decider.hpp"
#include "market/sim/market_files.hpp"
#include "market/sim/owners.hpp"

namespace souk::sim {

// A job that changes its bid a second after it first runs.
struct Rebid {
    uint32_t job = 0;  // index in the jobs
    Money value;
};

struct MarketRunOptions {
    market::SolverOptions solver;  // its link is the network below
    // decides in place of the solver, which then reckons the prices alone
    MakeDecider decider;
    std::string decided_by;  // its name, for reports
    int64_t network_mb_per_s = 100;
    int64_t disk_mb_per_s = 100;
    // A suspended job stands in memory first. It goes to disk when its memory is needed, or when
    // standing is not worth it any more (stopped_jobs.hpp). Only the solver can do this, not a
    // decider.
    bool two_stage = false;
    Nanos round_trip = Nanos::from_ms(1);  // of a request of a job that is away from its files
    bool prices = true;   // false: nobody pays and no surplus is reckoned, which saves that time
    bool record = false;  // keep the history (for plots)
    bool envy = false;    // reckon RunTotals::envy; wants prices
    // A job pays its price averaged over its own running time with the weight exp(-age /
    // price_window_s), from its first price on; at least the reserve of its place and at most what
    // the place is worth to it. 0: the price itself, as the market does.
    int64_t price_window_s = 0;
    std::optional<Rebid> rebid;
    // How each job bids, by index (market/core/strategy.hpp): once a minute, by the prices of this
    // run. SimJob::value stays what the job is worth to its user. Empty: all bid their value.
    std::vector<JobTerms> terms;
    // How the owner of each provider asks, by index: once an hour, by the prices of this run.
    // Empty: all ask their reserve.
    std::vector<Asks> asks;
    // The run ends when these jobs, by index, have; empty: when all have.
    std::vector<uint32_t> until;
    int64_t stop_s = INT64_MAX;  // or at this second
    // Ascending seconds at which it is noted how far the jobs of `until` are.
    std::vector<int64_t> marks;
};

// Exact sums of micro-units per hour times seconds; 128 bits hold any simulation.
struct MoneySeconds {
    __int128 micro_s = 0;
    void add(Money per_hour, int64_t times, int64_t seconds) {
        micro_s += static_cast<__int128>(per_hour.micro) * times * seconds;
    }
    // Ends at a quarter of the range, so that a sum of these stays in it too.
    Money money() const {
        return {static_cast<int64_t>(
            std::clamp<__int128>(micro_s / 3600, INT64_MIN / 4, INT64_MAX / 4))};
    }
    bool operator==(const MoneySeconds&) const = default;
};

struct JobOutcome {
    int64_t end_s = -1;  // -1: never finished, because nothing could run it any more
    int64_t done = 0;    // work, in hundredths of a standard second
    int64_t first_run_s = -1;
    int64_t operation_s = 0;  // in moves, freezes and thaws
    int64_t lost_s = 0;       // steps of their telling
    int64_t moved_mb = 0;     // carried by moves, freezes and thaws
    int64_t files_mb = 0;     // read and written through the network; wants prices
    uint32_t moves = 0, freezes = 0, thaws = 0;
    uint32_t stops = 0, resumes = 0;  // in memory
    MoneySeconds paid;
    bool operator==(const JobOutcome&) const = default;
};

struct ProviderOutcome {
    MoneySeconds earned, surplus;
    int64_t used_cpu_s = 0;  // in which a job advanced; wants prices
};

// The work that a job had done at some second, and its cost.
struct Mark {
    int64_t done = 0;  // as in JobOutcome
    MoneySeconds paid;
};

struct RunTotals {
    int64_t end_s = 0;                    // the last event
    uint32_t concurrent_freezes_max = 0;  // freezes and thaws under way at one time
    uint32_t concurrent_moves_max = 0;
    int64_t busy_cpu_s = 0;             // held CPUs x seconds
    int64_t offered_cpu_s = 0;          // until the last event
    MoneySeconds consumers, providers;  // surplus
    // Every job compares its place with that of each other job that needs as many CPUs, at that
    // one's price. The largest gain of each job counts, summed over jobs and time.
    MoneySeconds envy;
    uint64_t steps = 0;  // at which the solver was asked
};

// A job was at this provider from one second to another (history).
struct Stay {
    uint32_t job = 0;       // index in the jobs
    uint32_t provider = 0;  // index in the providers
    int64_t from_s = 0, to_s = 0;
};
struct Load {
    int64_t at_s = 0;
    int64_t busy_cpus = 0, offered_cpus = 0;  // from then on
};

struct RunOutcome {
    std::vector<JobOutcome> jobs;  // in the order of the jobs given
    std::vector<ProviderOutcome> providers;
    RunTotals totals;
    std::vector<Stay> stays;  // only with record
    std::vector<Load> loads;
    std::vector<Mark> marks;  // at the first second of `marks`: one for each job of `until`; then
                              // at the next second ...
};

// The name of whatever decides: the decider, or the solver's algorithm.
inline const std::string& decided_by(const MarketRunOptions& o) {
    return o.decider ? o.decided_by : o.solver.algorithm;
}

// Runs the market. Jobs and providers are ascending by id, and ids are unique (as the parsers give
// them). Fails on options that the solver does not take, as the decider does, when freezing and
// thawing eat all progress (for 10,000 steps no running job has advanced), and beyond seconds_max.
Result<RunOutcome> run_market(std::span<const SimJob> jobs, std::span<const SimProvider> providers,
                              const MarketRunOptions& options);

}  // namespace souk::sim
