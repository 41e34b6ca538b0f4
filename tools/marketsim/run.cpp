// SPDX-License-Identifier: GPL-2.0-or-later
// marketsim run: job and provider files through the market's solver.
#include <fmt/format.h>

#include "kernel/base/units.hpp"
#include "market/sim/files.hpp"
#include "market/sim/report.hpp"
#include "tools/marketsim/cli.hpp"
#include "tools/marketsim/market_options.hpp"
#include "tools/marketsim/verbs.hpp"

namespace souk::tools {
namespace {

using namespace sim;

constexpr const char* definitions = R"(Definitions, over the jobs that finished:
  stay = end - start; slowdown = stay / run;
  bounded slowdown = max(run, stay, alpha) / max(run, alpha).
  A freeze and a thaw count one freeze each; migrate-and-freeze time is that of the jobs that
  had any.
  weighted stay time: sum of value x stay. weighted completion time (WCT): the same without the
  second in which the end of each thaw or migration is told, in which the job does not advance yet.
  utilisation: held / offered CPU time until the last event. Surplus: consumers' worth - price,
  providers' price - reserve, welfare the sum; worth per hour is value x speed / fastest speed.
Files (home mb requests of a job: the provider that has its files, and the MB and requests of each
second away from it): elsewhere the job stands still while it waits for them, and with --horizon
the market reckons with that (docs/market.md).)";

constexpr Nanos millisecond = Nanos::from_ms(1);
constexpr Nanos round_trip_most = market::FileTraffic::round_trip_most;

struct RunOptions {
    std::string jobs, providers, out, json;
    int64_t alpha_s = 10;
    MarketRunOptions run;
};

Status run(const RunOptions& options) {
    TRY_ASSIGN(const std::vector<SimJob> jobs, read_jobs(options.jobs));
    TRY_ASSIGN(const std::vector<SimProvider> providers, read_providers(options.providers));
    TRY_ASSIGN(const RunOutcome outcome, run_market(jobs, providers, options.run));
    const RunReport report = report_of(jobs, providers.size(), outcome, options.alpha_s);
    const std::string summary = summary_text(report, options.run);
    const std::string json = report_json(report, options.run, options.alpha_s);
    OutputFiles files;
    files.spare(options.jobs);
    files.spare(options.providers);
    if (!options.out.empty()) {
        TRY(files.add(options.out, summary));
        TRY(files.add(options.out + ".json", json));
        TRY(files.add(options.out + ".csv", per_job_csv(jobs, outcome, options.alpha_s)));
    }
    if (!options.json.empty() && options.json != "-") TRY(files.add(options.json, json));
    TRY(files.commit());
    return print(options.json == "-" ? json : summary);
}

}  // namespace

int marketsim_run(int argc, char** argv) {
    RunOptions options;
    CommandLine line{.tool = "marketsim run",
                     .summary = "Jobs and providers through the market's solver, event by event.",
                     .footer = definitions};
    std::vector<Option>& rows = line.options;
    rows = {option('j', "jobs", options.jobs, file_name(),
                   "job file: id start run value memory cpus [user [home mb requests]]"),
            option('p', "providers", options.providers, file_name(),
                   "provider file: id start end reserve memory cpus speed"),
            option('o', "out", options.out, file_name(),
                   "write OUT (the summary), OUT.json and OUT.csv (a line a job)"),
            option(0, "json", options.json, file_name(),
                   "write the JSON to this file (-: to stdout, instead of the summary)"),
            option(0, "alpha", options.alpha_s, whole(1, 1'000'000),
                   "seconds below which a run does not count in bounded slowdown", Default::shown)};
    rows[0].required = rows[1].required = true;
    add_market_options(rows, options.run);
    const Kind<Nanos> round_trip{"TIME", [](const std::string& text) {
                                     return parse_span(text, millisecond, {}, round_trip_most);
                                 }};
    rows.push_back(option(0, "round-trip", options.run.round_trip, round_trip,
                          "of a request of a job that is away from its files; milliseconds, or "
                          "0.5s"));
    rows.back().usual = "1";
    if (const auto status = parse_options(line, argc, argv)) return *status;
    if (const Status valid = check_market_options(options.run); !valid)
        return usage_error(line, valid.error().message);
    return exit_status(line, run(options));
}

}  // namespace souk::tools
