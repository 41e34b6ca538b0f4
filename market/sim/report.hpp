// SPDX-License-Identifier: GPL-2.0-or-later
// RunReport: the figures of a simulated market that a researcher publishes. Pure.
//
// Definitions, over the jobs that finished (the others are counted alone):
// - stay = end - start; slowdown = stay / run; bounded slowdown = max(run, stay, alpha) / max(run,
// alpha).
// - A freeze and a thaw count one freeze each. Migrate-and-freeze time: seconds in moves, freezes
// and thaws, averaged
//   over the jobs that had any.
// - weighted stay time: sum of value x stay. Weighted bounded slowdown: sum of value x bounded
// slowdown.
// - weighted completion time (WCT): sum of value x (run + waiting + frozen + in moves, freezes and
// thaws), that is the
//   stay without the steps in which the end of a thaw or a move was told (market_run.hpp). With
//   this definition the
//   published example has its 9446; for a job that was never thawed or moved it is the stay.
// - wait = the first time that it ran - start. A percentile is the least value that so many percent
// of the jobs do not exceed.
// - utilisation: held CPU-seconds / offered CPU-seconds until the last event. Surplus and welfare
//   (market_run.hpp): money, integrated.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "market/sim/market_run.hpp"

namespace souk::sim {

struct ByValue {
    Money value;
    uint32_t jobs = 0;
    double slowdown_min = 0, slowdown = 0, bounded_slowdown = 0;
    double deviation = 0;  // standard deviation of the slowdown (of the population)
};

struct RunReport {
    uint32_t jobs = 0, providers = 0, unfinished = 0;
    double run_s = 0, stay_s = 0, slowdown = 0, bounded_slowdown = 0;  // averages
    double moves = 0, freezes = 0, operation_s = 0;                    // averages
    uint64_t moves_total = 0, freezes_total = 0;                       // thaws among the freezes
    int64_t moved_mb = 0;
    uint64_t stops = 0, resumes = 0;  // in memory, with two stages
    int64_t files_mb = 0;             // read and written through the network
    uint32_t concurrent_moves_max = 0, concurrent_freezes_max = 0;
    double weighted_completion_s = 0, weighted_stay_s = 0, weighted_bounded_slowdown = 0;
    double utilisation = 0;
    Money consumers_surplus, providers_surplus, welfare, paid;
    int64_t end_s = 0;
    std::vector<ByValue> by_value;  // ascending
    double wait_s = 0;              // average
    struct Percentiles {
        double p50 = 0, p95 = 0, p99 = 0;
    } waits, bounded_slowdowns;
};

RunReport report_of(std::span<const SimJob> jobs, size_t providers, const RunOutcome& outcome,
                    int64_t alpha_s);

// For people: the summary and the table by value, in the order of the published one.
std::string summary_text(const RunReport& report, const MarketRunOptions& options);
// One line a job, ascending by id, with a header line. Unfinished: an empty end, stay and slowdown.
std::string per_job_csv(std::span<const SimJob> jobs, const RunOutcome& outcome, int64_t alpha_s);

}  // namespace souk::sim
