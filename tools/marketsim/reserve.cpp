// SPDX-License-Identifier: GPL-2.0-or-later
// marketsim reserve: what `pvdctl set price auto` would have earned on job logs.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "market/core/reserve_learner.hpp"
#include "market/sim/files.hpp"
#include "market/sim/reserve_trial.hpp"
#include "tools/marketsim/cli.hpp"
#include "tools/marketsim/market_options.hpp"
#include "tools/marketsim/verbs.hpp"

namespace souk::tools {
namespace {

using namespace sim;

constexpr const char* reserve_conventions =
    R"(An owner lends one more CPU beside those of the log. The jobs of the log go by greedy
migration, with values drawn from --values. Each hour one more place costs the least bid
that has a place, or nothing while CPUs are free; the owner is paid what he asks if that is
not more, and nothing otherwise. Learned: the price that follows from the last 720 hours
(docs/owner.md has the rule), at least --floor. Fixed: the best price, of those 1 % apart,
that he could have asked all the time, chosen in hindsight. Regret: what the first earns
less than the second, of the second. All: each hour at its own price. Means over --seeds
draws of the values and of the rule's bonuses; the regret's greatest is shown too.)";

struct ReserveOptions {
    std::vector<std::string> traces;
    std::string json;
    Distribution values;
    int64_t cpus = 0, seeds = 5;
    double floor = 0, bonus = market::ReserveLearner::default_bonus;
};

struct ReserveRow {
    std::string trace;
    size_t hours = 0;
    double learned = 0, fixed = 0, fixed_price = 0, all = 0, regret = 0, worst = -1;
};

Result<ReserveRow> row_of(const std::string& path, const ReserveOptions& options) {
    TRY_ASSIGN(const SwfTrace trace, read_swf(path));
    TRY_ASSIGN(const int64_t cpus, processors_of(trace, path, options.cpus));
    const Workload workload = workload_of(trace, cpus, Procs::requested, Estimates::user);
    if (workload.jobs.empty()) return fail(path + ": no job is left");
    ReserveRow row;
    row.trace = std::filesystem::path(path).filename().string();
    const Money floor{static_cast<int64_t>(options.floor * 1e6)};
    const auto n = static_cast<double>(options.seeds);
    for (int64_t seed = 1; seed <= options.seeds; ++seed) {
        const ReplayTerms terms =
            terms_of(trace, workload, options.values, static_cast<uint64_t>(seed), 0, 0);
        const Schedule schedule = replay_greedy_migration(workload.jobs, cpus, terms);
        const auto prices = hourly_prices(workload.jobs, schedule, terms, cpus);
        const ReserveOutcome o =
            try_reserve(prices, floor, static_cast<uint64_t>(seed), options.bonus);
        row.hours = o.hours;
        row.learned += o.asked / n;
        row.fixed += o.fixed / n;
        row.fixed_price += static_cast<double>(o.fixed_price.micro) / 1e6 / n;
        row.all += o.all / n;
        row.worst = std::max(row.worst, o.regret());
    }
    row.regret = row.fixed > 0 ? 1 - row.learned / row.fixed : 0;
    return row;
}

Status reserve(const ReserveOptions& options) {
    auto json = nlohmann::ordered_json::array();
    std::string table = fmt::format("{:<36} {:>7} {:>12} {:>12} {:>8} {:>12} {:>8} {:>8}\n", "log",
                                    "hours", "learned", "fixed", "at", "all", "regret", "worst");
    for (const std::string& path : options.traces) {
        TRY_ASSIGN(const ReserveRow r, row_of(path, options));
        json.push_back({{"trace", r.trace},
                        {"hours", r.hours},
                        {"learned", r.learned},
                        {"fixed", r.fixed},
                        {"fixed_price", r.fixed_price},
                        {"all", r.all},
                        {"regret", r.regret},
                        {"worst_regret", r.worst}});
        table += fmt::format(
            "{:<36} {:>7} {:>12.1f} {:>12.1f} {:>8.2f} {:>12.1f} {:>7.2f}% {:>7.2f}%\n", r.trace,
            r.hours, r.learned, r.fixed, r.fixed_price, r.all, 100 * r.regret, 100 * r.worst);
    }
    if (options.json.empty()) return print(table);
    const std::string text = json.dump(2) + "\n";
    if (options.json == "-") return print(text);
    OutputFiles files;
    TRY(files.add(options.json, text));
    TRY(files.commit());
    return print(table);
}

}  // namespace

int marketsim_reserve(int argc, char** argv) {
    ReserveOptions options;
    CommandLine line{
        .tool = "marketsim reserve",
        .summary = "What an owner earns who learns what to ask (pvdctl set price auto).",
        .footer = reserve_conventions,
        .arguments = {{"traces", "job logs: Standard Workload Format, text or gzip",
                       add_text(options.traces), true}}};
    add_log_options(line.options, options.cpus, options.values);
    for (const Option& row :
         {option(0, "seeds", options.seeds, whole(1, 1'000), "how many draws", Default::shown),
          option(0, "floor", options.floor, real(0, 1e6), "the least that is asked",
                 Default::shown),
          option(0, "bonus", options.bonus, real(0, 10),
                 "of the rule, as a part of what its bound needs", Default::shown),
          option(0, "json", options.json, file_name(),
                 "write the result to this file as JSON (-: to stdout)")})
        line.options.push_back(row);
    if (const auto status = parse_options(line, argc, argv)) return *status;
    return exit_status(line, reserve(options));
}

}  // namespace souk::tools
