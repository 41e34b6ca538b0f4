// SPDX-License-Identifier: GPL-2.0-or-later
// run, compare and import share this: the market's options as arguments, the files, the report as
// JSON.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "market/sim/distribution.hpp"
#include "market/sim/import.hpp"
#include "market/sim/report.hpp"
#include "tools/common/typed_options.hpp"

namespace souk::tools {

// Names of those who can decide (outside_solver.hpp); another name is wrong usage, and the error
// lists them.
Kind<std::string> decider();
// Lists who may decide, for a line of help.
std::string solvers_help();
// The name as `find` has it; a name that it does not know is wrong usage, with its words.
Kind<std::string> named(Result<std::string> (*find)(const std::string& name));
// One line of the solver's table of options: `take` is called with each value, of which there may
// be `several`, with commas. `usual`: its default, for --help.
Option solver_option(const market::SolverOption& option, const std::function<void(int64_t)>& take,
                     bool several, const std::string& usual);
// Adds all these options, one value each. `into` must outlive the parsing.
void add_solver_options(std::vector<Option>& rows, market::SolverOptions& into);
// Writes the values of the options; times are in seconds.
nlohmann::ordered_json solver_json(const market::SolverOptions& options);
// Solver, pricing, migration-awareness, speeds of network and disk. The options must outlive the
// parsing.
void add_market_options(std::vector<Option>& rows, sim::MarketRunOptions& options);
Option two_stage_option(bool& two_stage);
// Fails if the solver does not take the options; sets who decides.
Status check_market_options(sim::MarketRunOptions& options);

// Errors begin with the file's name.
Result<std::vector<sim::SimJob>> read_jobs(const std::string& path);
Result<std::vector<sim::SimProvider>> read_providers(const std::string& path);

// Returns a log's processors: `said`, or what its header says.
Result<int64_t> processors_of(const sim::SwfTrace& trace, const std::string& path, int64_t said);
// Adds what the verbs over a log share: the log's processors (0: as its header says), and the
// distribution from which the values of its jobs are drawn, which `drawn` holds after the parsing.
void add_log_options(std::vector<Option>& rows, int64_t& cpus, sim::Distribution& drawn);

// These read the configuration of an import, and the workload that it gives.
Result<sim::ImportConfig> read_import_config(const std::string& path);
Result<sim::Imported> read_workload(const sim::ImportConfig& config);

// How a run is set up, as report_json() has it.
nlohmann::ordered_json settings_json(const sim::MarketRunOptions& options, int64_t alpha_s);
std::string report_json(const sim::RunReport& report, const sim::MarketRunOptions& options,
                        int64_t alpha_s);

}  // namespace souk::tools
