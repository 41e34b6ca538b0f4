// SPDX-License-Identifier: GPL-2.0-or-later
// Drawn workloads for the tests of simulated markets, and their runs.
#pragma once

#include "market/sim/import.hpp"
#include "market/sim/market_run.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {

// More work than the machines can do at once, in waves; `set` changes what is drawn.
template <class Set>
sim::Imported drawn(uint64_t seed, Set&& set) {
    sim::ImportConfig config;
    config.use_swf = false;
    config.memory = {sim::Distribution::Kind::fix, {10}};
    config.seed = seed;
    set(config);
    auto made = sim::draw_workload(config);
    ck_assert(made.has_value());
    return std::move(*made);
}

inline sim::RunOutcome run(const sim::Imported& w, const sim::MarketRunOptions& options) {
    auto outcome = sim::run_market(w.jobs, w.providers, options);
    ck_assert_msg(outcome.has_value(), "%s", outcome ? "" : outcome.error().message.c_str());
    return std::move(*outcome);
}

}  // namespace souk::unit
