// SPDX-License-Identifier: GPL-2.0-or-later
// Reports a comparison: as a table, CSV and JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "market/sim/lies.hpp"
#include "market/sim/market_run.hpp"
#include "market/sim/owners.hpp"
#include "market/sim/report.hpp"
#include "market/sim/strategies.hpp"
#include "market/sim/value_classes.hpp"

namespace souk::tools {

// Users and owners had this of one run.
struct Standing {
    double price = 0;  // paid for a CPU-hour of work on a standard machine
    double wait_s = 0, slowdown = 0, welfare = 0, envy = 0;  // means; envy: % of welfare
    std::vector<sim::ByOwner> owners;
    sim::Cases cases;  // of jobs that lie
};
Standing standing_of(const sim::Imported& workload, const sim::MarketRunOptions& run,
                     const sim::RunOutcome& outcome, int64_t alpha_s);

// A variant is one combination, with its outcome.
struct Variant {
    std::string name;
    sim::MarketRunOptions run;
    sim::RunOutcome outcome;              // of the first seed
    std::vector<sim::RunReport> reports;  // one for each seed
    sim::Mix mix;  // of the strategies of its jobs; none: all bid their value
    std::vector<std::vector<sim::ByStrategy>> strategies;  // for each seed
    sim::OwnerMix owners;              // none: all ask their reserve, and nothing of it is said
    std::vector<Standing> standings;   // for each seed
    std::vector<std::string> per_job;  // for each seed: per_job_csv; none: nobody asked
    std::string error;
    const sim::RunReport& report() const { return reports.front(); }
};

// Over several seeds: every figure with the half width of its 95 % confidence interval, and by how
// much it is more than that of the first variant, a line each.
std::string estimates_table(const std::vector<Variant>& variants, size_t seeds);
// A line for each variant: each figure, and the half width of its interval (empty with one seed).
std::string csv_text(const std::vector<Variant>& variants);
// Shows what each strategy paid, and how it fared, in each mix; empty if none was tried.
std::string strategies_table(const std::vector<Variant>& variants);
// Shows what users and owners had in each mix of owners; empty if none was tried.
std::string owners_table(const std::vector<Variant>& variants);
nlohmann::ordered_json owners_json(const Variant& variant);
std::string table(const std::vector<Variant>& variants,
                  const std::vector<sim::ValueClass>& classes);
// A line for each job of each variant and seed, behind their names.
std::string per_job_text(const std::vector<Variant>& variants,
                         const std::vector<std::string>& seeds);
// `workload`: what was simulated, as compare tells it.
std::string json_text(const std::vector<Variant>& variants, int64_t alpha_s,
                      const nlohmann::ordered_json& workload);

// Draws pictures with gnuplot; their names begin with `path`.
Status draw(const std::vector<Variant>& variants, const std::vector<sim::SimJob>& jobs,
            const std::vector<sim::SimProvider>& providers, const std::string& path);

}  // namespace souk::tools
