// SPDX-License-Identifier: GPL-2.0-or-later
// marketsim import: job and provider files from a job log, by a configuration.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "market/sim/files.hpp"
#include "market/sim/import.hpp"
#include "tools/marketsim/cli.hpp"
#include "tools/marketsim/market_options.hpp"
#include "tools/marketsim/verbs.hpp"

namespace souk::tools {
namespace {

using namespace sim;

constexpr const char* keys =
    R"(Configuration, key = value a line (with the value that it has when it is not given):
  use_swf = yes    no: no log; the jobs are drawn by interarrival and run
  trace            the log: SWF, text or gzip
  first_day = 0, last_day = -1         days of the log, from its first submit; -1: to the end
  arrival_divisor = 1, run_multiplier = 1
  jobs = -1        at most so many; -1: all
  value = uniform 10 60                fix A | uniform LO HI |
                                       bimodal P M1 D1 Q M2 D2 (P + Q = 100, or 1)
  cpus = one       one | requested | allocated: CPUs of a job
  memory = fix 100                     MB of a job, where the log says none
  interarrival = uniform 0 120, run = uniform 60 3600      seconds, use_swf = no
  users = no       yes: the user as seventh field
  providers        how many
  speed = fix 100, reservation = fix 1, provider_cpus = fix 1, provider_memory = fix 1000000
  seed = 1
Capitals and underscores of keys do not matter: firstDay is first_day.
Dropped: jobs without a submit time or a run time, and jobs that need more CPUs than the
largest provider has.
Offered load: run time x CPUs of all jobs / (CPUs x speed / 100 of all providers x time from
first arrival to last).)";

struct ImportOptions {
    std::string config, trace, out, json;
    int64_t seed = -1;
};

Status import(const ImportOptions& options) {
    Result<ImportConfig> config = read_import_config(options.config);
    if (!config) return tl::unexpected(std::move(config).error());
    if (!options.trace.empty()) config->trace = options.trace;
    if (options.seed >= 0) config->seed = static_cast<uint64_t>(options.seed);
    TRY_ASSIGN(const Imported imported, read_workload(*config));
    const std::string jobs = options.out + ".jobs", providers = options.out + ".providers";
    OutputFiles files;
    files.spare(options.config);
    if (config->use_swf) files.spare(config->trace);
    TRY(files.add(jobs, format_jobs(imported.jobs, config->users)));
    TRY(files.add(providers, format_providers(imported.providers)));
    TRY(files.commit());
    const std::optional<double> load = offered_load(imported);
    if (options.json == "-") {
        const nlohmann::ordered_json json = {
            {"jobs_file", jobs},
            {"providers_file", providers},
            {"jobs", imported.jobs.size()},
            {"providers", imported.providers.size()},
            {"dropped_no_submit", imported.dropped_no_submit},
            {"dropped_no_run", imported.dropped_no_run},
            {"dropped_too_wide", imported.dropped_too_wide},
            {"offered_load", load ? nlohmann::ordered_json(*load) : nullptr}};
        return print(json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    }
    return print(
        fmt::format("{}: {} jobs (dropped: {} without a submit time, {} without a run time, {} "
                    "wider than every provider)\n"
                    "{}: {} providers\noffered load: {}\n",
                    jobs, imported.jobs.size(), imported.dropped_no_submit, imported.dropped_no_run,
                    imported.dropped_too_wide, providers, imported.providers.size(),
                    load ? fmt::format("{:.4f}", *load) : "all jobs arrive at once"));
}

}  // namespace

int marketsim_import(int argc, char** argv) {
    ImportOptions options;
    CommandLine line{.tool = "marketsim import",
                     .summary = "Job and provider files from a job log, by a configuration.",
                     .options = {option('o', "out", options.out, file_name(),
                                        "write OUT.jobs and OUT.providers"),
                                 option(0, "trace", options.trace, file_name(),
                                        "this log instead of the configuration's"),
                                 option(0, "seed", options.seed, whole(0, INT64_MAX),
                                        "this seed instead of the configuration's"),
                                 option(0, "json", options.json, one_of({"-"}),
                                        "-: say what was written as JSON on stdout")},
                     .footer = keys,
                     .arguments = {{"config", "the configuration", set_text(options.config)}}};
    line.options[0].required = true;
    if (const auto status = parse_options(line, argc, argv)) return *status;
    return exit_status(line, import(options));
}

}  // namespace souk::tools
