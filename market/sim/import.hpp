// SPDX-License-Identifier: GPL-2.0-or-later
// Import: jobs and providers of a simulated market from a job log, by a configuration. Pure and
// seeded: the same log, configuration and seed give the same files.
//
// Configuration: `key = value` a line, the value in quotes or not, `#` starts a comment, empty
// lines are skipped. So it may be TOML. Every key once; an error says line, key and why. Capitals
// and underscores of keys do not matter, so the keys of the market simulator's older import files
// are taken too (useSWF, firstDay, numJobs, swfDivStart; `aliases` in import.cpp). These may name a
// distribution by two keys (valueDist = uniform, valueDistArgs = 10 60).
//   use_swf          yes   no: there is no log, the jobs are drawn by `interarrival` and `run`
//   trace            the log (a path as seen from where the program runs)
//   first_day        0     only jobs submitted on these days of the log, counted from its first
//                          submit
//   last_day         -1    -1: to the end
//   arrival_divisor  1     arrival times, from the first day on, are divided by this (decimals
//                          allowed)
//   run_multiplier   1     run times are multiplied by this, rounded, at least 1 s
//   jobs             -1    at most so many jobs, the first ones; -1: all
//   value            uniform 10 60    what values are drawn from (distribution.hpp)
//   cpus             one   CPUs of a job: one, requested or allocated (with the other one where
//                          there is none)
//   memory           fix 100          MB of a job, where the log says neither used nor requested
//                                     memory
//   interarrival     uniform 0 120    use_swf = no: seconds from one arrival to the next
//   run              uniform 60 3600  use_swf = no: run times in seconds
//   users            no    yes: write the user as seventh field (unknown: 2^31 + the job's id, a
//                          user of its own)
//   providers        (needed)         how many
//   speed            fix 100
//   reservation      fix 1
//   provider_cpus    fix 1
//   provider_memory  fix 1000000      MB
//   seed             1
// Dropped: jobs without a submit time or a run time, and jobs that need more CPUs than the largest
// provider has.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "market/sim/distribution.hpp"
#include "market/sim/market_files.hpp"
#include "market/sim/swf.hpp"

namespace souk::sim {

enum class ImportCpus { one, requested, allocated };

struct ImportConfig {
    bool use_swf = true;
    std::string trace;
    int64_t first_day = 0, last_day = -1;
    int64_t arrival_divisor_micro = 1'000'000, run_multiplier_micro = 1'000'000;
    int64_t jobs_max = -1;
    Distribution value{Distribution::Kind::uniform, {10, 60}};
    ImportCpus cpus = ImportCpus::one;
    Distribution memory{Distribution::Kind::fix, {100}};
    Distribution interarrival{Distribution::Kind::uniform, {0, 120}},
        run{Distribution::Kind::uniform, {60, 3600}};
    bool users = false;
    int64_t providers = 0;
    Distribution speed{Distribution::Kind::fix, {100}}, reservation{Distribution::Kind::fix, {1}};
    Distribution provider_cpus{Distribution::Kind::fix, {1}},
        provider_memory{Distribution::Kind::fix, {1'000'000}};
    uint64_t seed = 1;
};

Result<ImportConfig> parse_import_config(std::string_view text);

struct Imported {
    std::vector<SimJob> jobs;  // ids from 1, by arrival
    std::vector<SimProvider> providers;
    uint32_t dropped_no_submit = 0, dropped_no_run = 0, dropped_too_wide = 0;
};
// Fails when no job is left, or one would start after seconds_max.
Result<Imported> import_trace(const SwfTrace& trace, const ImportConfig& config);
// Without a log (use_swf = no): `jobs` jobs, the first at 0. Fails as above.
Result<Imported> draw_workload(const ImportConfig& config);

// The work that arrives of what can be done: run time x CPUs of all jobs / (standard CPUs x time
// from the first arrival to the last); a standard CPU has speed 100. nullopt: all arrive at once.
std::optional<double> offered_load(const Imported& workload);

}  // namespace souk::sim
