// SPDX-License-Identifier: GPL-2.0-or-later
// What one job of a recorded workload gains when it, or another job, says something else than the
// truth: the lies, the changes that are no lie of the job (controls), and the measures of gain.
//
// What a job gains, in three measures:
// - by its end: what is done until the second at which it ends when it says the truth is worth
//   value x CPU-hours x speed / fastest speed; later work is worth nothing. Less what it pays.
// - patient: the same, but with half again as much time.
// - impatient: all work is worth the same, and each hour in the system costs value x CPUs (the
//   weighted completion time of Amar, Mu'alem and Stoesser 2008). Less what it pays. Work that is
//   never done is lost, and has waited until the end of the run.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "kernel/base/rng.hpp"
#include "tests/study/study.hpp"

namespace souk::study {

struct Lie {
    const char* kind;
    double bid = 1;
    int64_t later_s = 0;  // below 0: earlier, with a placeholder that runs as long
    double rebid = 0;     // once it runs; 0: never
    int32_t parts = 1;    // jobs in place of one; 0: one for each CPU
    std::string name() const;
    bool suits(const sim::SimJob& job) const { return parts == 1 || job.cpus > 1; }
};
inline constexpr Lie lies[] = {
    {"bid", 0.2},
    {"bid", 0.5},
    {"bid", 0.8},
    {"bid", 0.9},
    {"bid", 1.1},
    {"bid", 1.25},
    {"bid", 2},
    {"bid", 5},
    {"late", 1, 60},
    {"late", 1, 600},
    {"late", 1, 3600},
    {"early", 1, -300},
    {"bid later", 1, 0, 5},
    {"bid later", 1, 0, 2},
    {"bid later", 1, 0, 0.5},
    {"bid later", 2, 0, 1},
    {"split", 1, 0, 0, 2},
    {"split", 1, 0, 0, 0},
};

inline constexpr std::array measures{"by its end", "patient", "impatient"};
using Gains = std::array<double, measures.size()>;  // micro-units

struct Told {
    size_t lie;   // index in `lies`
    Gains gains;  // more than by the truth
};

// What a job of a run gains by each lie, and by each control.
struct Case {
    double paid = 0;      // micro-units, by the truth
    size_t value = 0;     // quarter of values
    size_t workload = 0;  // for confidence intervals: cases of one workload are not independent
    std::vector<Told> by_lies;
    // As many as lies: another user's job, who came before this one ended, comes a second later ...
    std::vector<Gains> by_arrival;
    // ... or tells the same lie.
    std::vector<Gains> by_others;
};

// Of `asked` jobs that the seed draws; those that pay nothing, or never end, are left out.
std::vector<Case> cases_of(const sim::Imported& workload, const sim::MarketRunOptions& options,
                           int64_t asked, bool controls, uint64_t seed);

}  // namespace souk::study
