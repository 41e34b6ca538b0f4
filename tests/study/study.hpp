// SPDX-License-Identifier: GPL-2.0-or-later
// The studies of the market share this file: workloads cut from job logs, means with their
// confidence intervals, tables. Everything is drawn from seeds, so a study prints the same each
// time.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "kernel/base/rng.hpp"
#include "market/sim/import.hpp"
#include "market/sim/market_run.hpp"

namespace souk::study {

// Text and JSON of one table.
struct Table {
    std::string name;
    std::vector<std::string> columns;
    std::vector<std::vector<std::string>> rows;

    void add(std::vector<std::string> row) { rows.push_back(std::move(row)); }
    std::string text() const;
    std::string json() const;
};
std::string number(double value, int decimals);

struct Sample {
    std::vector<double> values;
    void add(double value) { values.push_back(value); }
    double mean() const;
    // Half the width of the 95 % confidence interval of the mean (normal approximation).
    double half_width() const;
    double quantile(double part) const;
    double most() const { return quantile(1); }
    // "1.23 ± 0.45"
    std::string text(int decimals) const;
};

// The quarter of the drawn values, 10 to 60, in which this one lies.
size_t quarter_of(Money value);
inline constexpr std::array quarters{"10-22", "23-35", "36-47", "48-60"};

struct Trace {
    std::string name;
    sim::SwfTrace log;  // sorted by submit time
};
// Reads all *.swf.gz of a directory, in the order of their names.
std::vector<Trace> read_traces(const std::string& directory);

struct Kind {
    bool wide;             // jobs of up to 16 CPUs on machines of 16; else one CPU each
    bool equal_reserves;   // all ask 5; else 1 to 20
    int64_t machines = 0;  // 0: 4 if wide, else 16
    std::string text() const;
};
// `jobs` jobs in a row of the log, from a place that the seed draws, in the users of the log, with
// values of 10 to 60, on machines of speed 60 to 100; arrivals are drawn together or apart so that
// the work that comes is 1.1 times what can be done. Without jobs: 20 stretches had none that fits.
sim::Imported workload_of(const Trace& trace, const Kind& kind, int64_t jobs, uint64_t seed);

sim::RunOutcome run(const sim::Imported& workload, const sim::MarketRunOptions& options);

struct Settings {
    std::string traces;
    int64_t jobs = 150;
    int64_t seeds = 20;
};
std::vector<Table> lies_in_one_decision(const Settings& settings);
std::vector<Table> lies_over_time(const Settings& settings);
std::vector<Table> owners_who_ask_more(const Settings& settings);
std::vector<Table> welfare_beside_the_optimum(const Settings& settings);
std::vector<Table> side_by_side(const Settings& settings);

}  // namespace souk::study
