// SPDX-License-Identifier: GPL-2.0-or-later
// Jobs of a simulated market that bid by strategies (market/core/strategy.hpp), and what came of
// each strategy. Pure and seeded.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "market/core/strategy.hpp"
#include "market/sim/market_run.hpp"

namespace souk::sim {

// The strategies in a run. Each job draws one of them, all equally likely.
struct Mix {
    std::string name;
    std::vector<market::Strategy> of;
};
// Reads names with `+` between them; `all` names all four. Errors: no strategy has that name.
Result<Mix> parse_mix(const std::string& name);

// A job's time is drawn between 1.2 and `slack` times its run time, its budget between 0.3 and 1
// times what it would cost at its value, on a standard machine; both are the same in every mix with
// the same seed.
std::vector<JobTerms> terms_of(std::span<const SimJob> jobs, const Mix& mix, double slack,
                               uint64_t seed);

struct ByStrategy {
    market::Strategy strategy{};
    uint32_t jobs = 0, unfinished = 0;
    double price = 0;             // paid for a CPU-hour of work on a standard machine, units
    double bounded_slowdown = 0;  // mean of those that finished (report.hpp)
    double in_time = 0;           // part of all
};
// Sums the outcome by the strategies that jobs have, in the order of the enum.
std::vector<ByStrategy> by_strategy(std::span<const SimJob> jobs, std::span<const JobTerms> terms,
                                    const RunOutcome& outcome, int64_t alpha_s);

}  // namespace souk::sim
