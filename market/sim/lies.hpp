// SPDX-License-Identifier: GPL-2.0-or-later
// This file measures what one job of a recorded workload gains when it, or another job, does not
// tell the truth. It lists the lies, the changes that are no lie of the job (controls), and the
// measures of gain.
//
// What a job gains, in three measures:
// - by its end: what is done until the second at which it ends when it says the truth is worth
//   value x CPU-hours x speed / fastest speed; later work is worth nothing. Less what it pays.
// - patient: the same, but with half again as much time.
// - impatient: all work is worth the same, and each hour in the system costs value x CPUs (the
//   weighted completion time of Amar, Mu'alem and Stoesser 2008). Less what it pays. Work that is
//   never done is lost, and has waited until the end of the run. (Not told of jobs with terms.)
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "kernel/base/rng.hpp"
#include "market/sim/import.hpp"
#include "market/sim/market_run.hpp"

namespace souk::sim {

struct Lie {
    const char* kind;
    double bid = 1;
    int64_t later_s = 0;  // below 0: earlier, with a placeholder that runs as long
    double rebid = 0;     // once it runs; 0: never
    int32_t parts = 1;    // jobs in place of one; 0: one for each CPU
    std::string name() const;
    bool suits(const SimJob& job) const { return parts == 1 || job.cpus > 1; }
    // A job with terms of its own (MarketRunOptions::terms) lies about its maximum price, or comes
    // late.
    bool suits_terms() const { return parts == 1 && rebid == 0 && later_s >= 0; }
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

struct LieTold {
    size_t lie;   // index in `lies`
    Gains gains;  // more than by the truth
};

// The gains of one job of a run by each lie and by each control.
struct Case {
    double paid = 0;  // micro-units, by the truth
    Money value;
    size_t workload = 0;  // for confidence intervals: cases of one workload are not independent
    std::vector<LieTold> by_lies;
    // The controls, as many as there are lies: another user's job, which came before this one
    // ended, comes a second later ...
    std::vector<Gains> by_arrival;
    // ... or tells the same lie.
    std::vector<Gains> by_others;
};

// Plays every lie for `asked` jobs that the seed draws. Jobs that pay nothing, or never end, are
// left out, because gains are a part of what a job pays.
using Runs = std::function<RunOutcome(const Imported& workload, const MarketRunOptions& options)>;
std::vector<Case> cases_of(const Imported& workload, const MarketRunOptions& options,
                           const Runs& run, int64_t asked, bool controls, uint64_t seed);

// A mean, or the quotient of two sums, over cases. Cases of one workload are not independent, so
// the confidence interval treats them as one group.
class Mean {
  public:
    void add(size_t workload, double value, double weight = 1) {
        value_ += value, weight_ += weight, ++cases_;
        by_workload_[workload].first += value, by_workload_[workload].second += weight;
    }
    bool empty() const { return cases_ == 0; }
    double mean() const { return weight_ > 0 ? value_ / weight_ : 0; }
    // Half the width of the 95 % confidence interval (normal approximation, by workload).
    double half_width() const;
    std::string text() const;  // "1.23 ± 0.45"

  private:
    double value_ = 0, weight_ = 0;
    size_t cases_ = 0;
    std::map<size_t, std::pair<double, double>> by_workload_;
};

using Cases = std::vector<Case>;
inline double percent(const Case& c, const Gains& gains, size_t measure) {
    return 100 * gains[measure] / c.paid;
}
bool splits(size_t lie);
// The mean gain of each lie, in % of what the job pays.
std::array<Mean, std::size(lies)> by_lie(const Cases& cases, size_t measure);
// The gain of a lie that is chosen before it is told. On one half of the workloads we find the lie
// that gains most on average (the truth, if none gains), and tell it on the other half; then the
// halves change places. Splits are left out: only some jobs can be split, and a user who knows that
// would have chosen by it.
struct Chosen {
    std::set<std::string> names;
    Mean percent_of_job, percent_of_sum;
};
Chosen chosen(const Cases& cases, size_t measure);

}  // namespace souk::sim
