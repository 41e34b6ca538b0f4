// SPDX-License-Identifier: GPL-2.0-or-later
// The two parts of marketsim coallocation share this: the experiments, and a job log split into
// components.
#pragma once

#include <string>
#include <vector>

#include "kernel/base/result.hpp"
#include "market/sim/coallocation_experiments.hpp"
#include "market/sim/coallocation_log.hpp"

namespace souk::tools {

struct CoallocationOptions {
    std::vector<int> experiments{1, 2, 3, 4, 5};
    std::vector<std::string> policies;  // none named: the usual ones of each part
    std::vector<std::string> placements{"worst_fit"};
    int64_t seeds = 20, overtakes_max = 20, depth = 50;
    sim::coallocation::Background background;
    sim::coallocation::Terms terms{1000, 5000, 5000, 5000};
    double slowdown = 1;
    std::string json, csv;
    // The part that reads a log has these.
    std::string log;
    std::vector<int64_t> clusters{32, 32, 32, 32};
    std::vector<double> loads{0.3, 0.4, 0.5, 0.6, 0.7, 0.8};
    std::string requests = "unordered", values = "worth";
    sim::coallocation::LogTerms log_terms;
};

bool by_market(const std::string& policy);
// Runs the world under a policy of the table, or under the market, which places by itself.
Result<sim::coallocation::Outcome> run_world(const CoallocationOptions& o,
                                             sim::coallocation::World& world,
                                             const std::string& policy,
                                             const std::string& placement);

// Tables for people and for programs.
struct StudyText {
    std::string table, csv, json;
};
Result<StudyText> log_study(const CoallocationOptions& options);

}  // namespace souk::tools
