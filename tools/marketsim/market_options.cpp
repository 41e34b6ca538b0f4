// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/marketsim/market_options.hpp"

#include "market/core/algorithm.hpp"
#include "market/sim/files.hpp"
#include "tools/common/table.hpp"
#include "tools/marketsim/outside_solver.hpp"

namespace souk::tools {

using namespace sim;

namespace {

// Money as a JSON number: exact, because it is printed with at most six decimals.
nlohmann::ordered_json money(Money m) { return parse_json(format_money(m)); }

}  // namespace

Kind<std::string> decider() {
    return {"NAME", [](const std::string& text) -> Result<std::string> {
                MarketRunOptions ignored;
                TRY(set_decider(ignored, text));
                return text;
            }};
}

std::string solvers_help() {
    std::string ahead;
    for (const market::AlgorithmEntry& one : market::algorithm_registry())
        if (one.looks_ahead) ahead += (ahead.empty() ? "" : ", ") + std::string(one.name);
    return market::Solver::algorithms_help() + " (" + ahead +
           " know the true run times here, as no scheduler does), or a program that speaks the "
           "solver's protocol (./mine)";
}

Kind<std::string> named(Result<std::string> (*find)(const std::string& name)) {
    return {"NAME", find};
}

Option solver_option(const market::SolverOption& option, const std::function<void(int64_t)>& take,
                     bool several, const std::string& usual) {
    const bool time = option.kind == market::SolverOption::Kind::time;
    const std::string help = std::string(option.help) + (time ? "; seconds, or 10m, 1.5h" : "") +
                             (several ? "; with commas" : "");
    const auto set = [&option, take, time, several](const char* given) -> Status {
        for (const std::string& text :
             several ? comma_parts(given) : std::vector{std::string(given)}) {
            TRY_ASSIGN(const int64_t value, option.parse(text, Nanos::from_s(1)));
            if (time && value % 1'000'000'000 != 0)
                return fail("'" + text + "' is no whole number of seconds");
            take(value);
        }
        return {};
    };
    return {.letter = 0,
            .name = lasting(std::string(option.name)),
            .value = time ? "TIME" : "NUMBER",
            .help = lasting(help),
            .set = set,
            .usual = usual,
            .once = !several};
}

void add_solver_options(std::vector<Option>& rows, market::SolverOptions& into) {
    for (const market::SolverOption& option : market::solver_option_table())
        rows.push_back(solver_option(
            option, [&option, &into](int64_t value) { option.set(into, value); }, false,
            option.text(option.get(into))));
}

nlohmann::ordered_json solver_json(const market::SolverOptions& options) {
    nlohmann::ordered_json json;
    for (const market::SolverOption& option : market::solver_option_table()) {
        const int64_t value = option.get(options);
        std::string name(option.key);
        if (option.kind == market::SolverOption::Kind::time) {
            name = std::string(option.name) + "_s";
            std::replace(name.begin(), name.end(), '-', '_');
            json[name] = value / 1'000'000'000;
        } else if (option.kind == market::SolverOption::Kind::money) {
            json[name] = money(Money{value});
        } else {
            json[name] = value;
        }
    }
    return json;
}

void add_market_options(std::vector<Option>& rows, MarketRunOptions& options) {
    market::SolverOptions& solver = options.solver;
    rows.push_back(option('s', "solver", options.decided_by, decider(), lasting(solvers_help())));
    rows.back().usual = solver.algorithm;
    rows.push_back(option(0, "pricing", solver.pricing, named(market::Solver::pricing_named),
                          "the pricing", Default::shown));
    add_solver_options(rows, solver);
    const auto rate = whole(1, 1'000'000);
    rows.push_back(option(0, "network", options.network_mb_per_s, rate, "MB/s of a migration",
                          Default::shown));
    rows.push_back(option(0, "disk", options.disk_mb_per_s, rate, "MB/s of a freeze and of a thaw",
                          Default::shown));
    rows.push_back(two_stage_option(options.two_stage));
}

Option two_stage_option(bool& two_stage) {
    return {0, "two-stage", nullptr,
            "what is suspended stands in memory first, and goes to disk when that is wanted, or is "
            "not worth it any more by the record of such cases",
            set_flag(two_stage)};
}

Status check_market_options(MarketRunOptions& options) {
    if (!options.decided_by.empty()) TRY(set_decider(options, options.decided_by));
    if (options.two_stage && options.decider)
        return fail("--two-stage: " + options.decided_by + " is not the market's own solver");
    market::Solver solver;
    return solver.set_options(options.solver);
}

Result<std::vector<SimJob>> read_jobs(const std::string& path) {
    TRY_ASSIGN(const std::string text, read_text(path));
    Result<std::vector<SimJob>> jobs = parse_jobs(text);
    if (!jobs) return wrap(path, std::move(jobs).error());
    return jobs;
}

Result<std::vector<SimProvider>> read_providers(const std::string& path) {
    TRY_ASSIGN(const std::string text, read_text(path));
    Result<std::vector<SimProvider>> providers = parse_providers(text);
    if (!providers) return wrap(path, std::move(providers).error());
    return providers;
}

Result<int64_t> processors_of(const SwfTrace& trace, const std::string& path, int64_t said) {
    const int64_t cpus = said > 0 ? said : trace.max_procs;
    if (cpus == 0) return fail(path + ": its header has no MaxProcs: say --cpus");
    return cpus;
}

void add_log_options(std::vector<Option>& rows, int64_t& cpus, Distribution& drawn) {
    constexpr const char* usual = "uniform 10 60";
    drawn = *parse_distribution(usual);
    rows.push_back(option(0, "cpus", cpus, whole(1, INT32_MAX - 1),
                          "processors of the machine (default: MaxProcs of the log)"));
    rows.push_back(option(0, "values", drawn, Kind<Distribution>{"TEXT", parse_distribution},
                          "what the jobs' values are drawn from"));
    rows.back().usual = usual;
}

Result<ImportConfig> read_import_config(const std::string& path) {
    TRY_ASSIGN(const std::string text, read_text(path));
    Result<ImportConfig> config = parse_import_config(text);
    if (!config) return wrap(path, std::move(config).error());
    return config;
}

Result<Imported> read_workload(const ImportConfig& config) {
    if (!config.use_swf) return draw_workload(config);
    TRY_ASSIGN(const SwfTrace trace, read_swf(config.trace));
    Result<Imported> imported = import_trace(trace, config);
    if (!imported) return wrap(config.trace, std::move(imported).error());
    return imported;
}

nlohmann::ordered_json settings_json(const MarketRunOptions& options, int64_t alpha_s) {
    nlohmann::ordered_json json = {{"solver", decided_by(options)},
                                   {"pricing", options.solver.pricing}};
    // A real scheduler of this name has its users' estimates alone.
    if (market::looks_ahead(decided_by(options))) json["knows_run_times"] = true;
    json.update(solver_json(options.solver));
    json.update(nlohmann::ordered_json{{"network_mb_per_s", options.network_mb_per_s},
                                       {"disk_mb_per_s", options.disk_mb_per_s},
                                       {"alpha_s", alpha_s}});
    if (options.two_stage) json["two_stage"] = true;
    return json;
}

std::string report_json(const RunReport& r, const MarketRunOptions& options, int64_t alpha_s) {
    nlohmann::ordered_json by_value = nlohmann::ordered_json::array();
    for (const ByValue& v : r.by_value)
        by_value.push_back({{"value", money(v.value)},
                            {"jobs", v.jobs},
                            {"min_slowdown", v.slowdown_min},
                            {"slowdown", v.slowdown},
                            {"bounded_slowdown", v.bounded_slowdown},
                            {"deviation", v.deviation}});
    nlohmann::ordered_json json = settings_json(options, alpha_s);
    json.update(nlohmann::ordered_json{{"jobs", r.jobs},
                                       {"unfinished", r.unfinished},
                                       {"providers", r.providers},
                                       {"mean_run_s", r.run_s},
                                       {"mean_stay_s", r.stay_s},
                                       {"mean_slowdown", r.slowdown},
                                       {"mean_bounded_slowdown", r.bounded_slowdown},
                                       {"bounded_slowdown_p50", r.bounded_slowdowns.p50},
                                       {"bounded_slowdown_p95", r.bounded_slowdowns.p95},
                                       {"bounded_slowdown_p99", r.bounded_slowdowns.p99},
                                       {"mean_wait", r.wait_s},
                                       {"wait_p50", r.waits.p50},
                                       {"wait_p95", r.waits.p95},
                                       {"wait_p99", r.waits.p99},
                                       {"mean_migrations", r.moves},
                                       {"mean_freezes", r.freezes},
                                       {"mean_migrate_and_freeze_s", r.operation_s},
                                       {"migrations", r.moves_total},
                                       {"freezes", r.freezes_total},
                                       {"max_concurrent_migrations", r.concurrent_moves_max},
                                       {"max_concurrent_freezes", r.concurrent_freezes_max},
                                       {"moved_mb", r.moved_mb},
                                       {"weighted_completion_time", r.weighted_completion_s},
                                       {"weighted_stay_time", r.weighted_stay_s},
                                       {"weighted_bounded_slowdown", r.weighted_bounded_slowdown},
                                       {"utilisation", r.utilisation},
                                       {"consumers_surplus", money(r.consumers_surplus)},
                                       {"providers_surplus", money(r.providers_surplus)},
                                       {"social_welfare", money(r.welfare)},
                                       {"paid", money(r.paid)},
                                       {"makespan_s", r.end_s},
                                       {"by_value", by_value}});
    if (r.files_mb > 0) json["files_mb"] = r.files_mb;
    if (options.two_stage) {
        json["stops"] = r.stops;
        json["resumes"] = r.resumes;
    }
    return json.dump(2) + "\n";
}

}  // namespace souk::tools
