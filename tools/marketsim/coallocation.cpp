// SPDX-License-Identifier: GPL-2.0-or-later
// marketsim coallocation: the experiments of the reference co-allocator anew, under any of the
// policies and placements (market/sim/coallocation_*.hpp).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "market/sim/coallocation_market.hpp"
#include "market/sim/coallocation_solver.hpp"
#include "market/sim/files.hpp"
#include "tools/marketsim/cli.hpp"
#include "tools/marketsim/coallocation.hpp"
#include "tools/marketsim/verbs.hpp"

namespace souk::tools {
namespace {

namespace co = sim::coallocation;

constexpr const char* as_published = "published";
// The market, with requests as they are, and with ordered ones as if they were unordered: their
// files are at the same path in each cluster.
constexpr const char* market = "market";
constexpr const char* market_anywhere = "market_anywhere";
// The solver of marketd, which knows no request that names a cluster.
constexpr const char* solver_anywhere = "solver_anywhere";

void free_ordered(co::World& world) {
    for (co::Job& job : world.jobs) {
        if (job.kind != co::Kind::ordered) continue;
        job.kind = co::Kind::unordered;
        for (co::Component& c : job.components) c.cluster = co::Component::anywhere;
    }
}

}  // namespace

bool by_market(const std::string& policy) {
    return policy == market || policy == market_anywhere || policy == solver_anywhere;
}

// Under a policy of the table, or the market, which places by itself.
Result<co::Outcome> run_world(const CoallocationOptions& o, co::World& world,
                              const std::string& policy, const std::string& placement) {
    if (policy == market_anywhere || policy == solver_anywhere) free_ordered(world);
    const auto place = by_market(policy) ? co::make_near_placement(world.clusters)
                                         : co::make_placement(placement, world.clusters);
    TRY(co::all_fit(world, *place));
    if (policy == solver_anywhere) {
        TRY_ASSIGN(const auto solver, co::make_solver_policy(world));
        return co::run(world, *solver);
    }
    const auto made = by_market(policy) ? co::make_market(*place, {})
                                        : co::make_policy(policy, *place,
                                                          {static_cast<uint32_t>(o.overtakes_max),
                                                           static_cast<uint32_t>(o.depth)});
    return co::run(world, *made);
}

namespace {

// A mean over the seeds and half its 95 % confidence interval.
struct MeanEstimate {
    double mean = 0, half = 0;
};
MeanEstimate estimate_of(const std::vector<double>& values) {
    MeanEstimate out;
    const auto n = static_cast<double>(values.size());
    for (const double v : values) out.mean += v / n;
    double squares = 0;
    for (const double v : values) squares += (v - out.mean) * (v - out.mean);
    if (values.size() > 1) out.half = 1.96 * std::sqrt(squares / (n - 1) / n);
    return out;
}

struct Row {
    const co::Experiment* experiment;
    std::string policy, placement;
    bool published;  // it ran so
    std::vector<co::Figures> seeds;

    template <class F>
    MeanEstimate of(F figure) const {
        std::vector<double> values;
        for (const co::Figures& f : seeds) values.push_back(figure(f));
        return estimate_of(values);
    }
    MeanEstimate response() const {
        return of([](const co::Figures& f) { return f.response_s; });
    }
    double off() const { return 100 * (response().mean / experiment->response.mean_s - 1); }
};

Result<Row> run_row(const CoallocationOptions& o, const co::Experiment& e,
                    const std::string& policy, const std::string& placement) {
    const bool published = policy == as_published;
    Row row{&e, published ? std::string(e.policy) : policy, placement, false, {}};
    row.published = row.policy == e.policy && placement == "worst_fit";
    if (by_market(policy)) row.placement = "its own";
    for (int64_t seed = 1; seed <= o.seeds; ++seed) {
        co::World world =
            co::experiment_world(e, o.background, static_cast<uint64_t>(seed), o.terms);
        TRY_ASSIGN(const co::Outcome outcome, run_world(o, world, row.policy, placement));
        row.seeds.push_back(co::figures_of(world, outcome));
    }
    return row;
}

std::string table(const std::vector<Row>& rows) {
    std::string out = fmt::format(
        "{:<3} {:<18} {:<15} {:>17} {:>9} {:>7} {:>7} {:>8} {:>7} {:>6} "
        "{:>6} {:>5} {:>6} {:>8}\n",
        "exp", "policy", "placement", "response s", "published", "off %", "sd s", "publ. sd",
        "run s", "DCS %", "oth. %", "jobs", "moves", "end s");
    for (const Row& r : rows) {
        const MeanEstimate response = r.response();
        const auto mean = [&](auto figure) { return r.of(figure).mean; };
        using F = const co::Figures&;
        out += fmt::format(
            "{:<3} {:<18} {:<15} {:>9.1f} ± {:>5.1f} {:>9.1f} {:>7} {:>7.1f} {:>8.1f} {:>7.1f} "
            "{:>6.1f} {:>6.1f} {:>5.1f} {:>6.1f} {:>8.0f}\n",
            r.experiment->number, r.policy, r.placement, response.mean, response.half,
            r.experiment->response.mean_s,
            r.published ? fmt::format("{:+.1f}", r.off()) : std::string("-"),
            mean([](F f) { return f.response_sd_s; }), r.experiment->response.deviation_s,
            mean([](F f) { return f.run_s; }), 100 * mean([](F f) { return f.utilisation; }),
            100 * mean([](F f) { return f.background; }),
            mean([](F f) { return static_cast<double>(f.running_max); }),
            mean([](F f) { return f.moves; }), mean([](F f) { return f.end_s; }));
    }
    return out;
}

std::string csv_text(const std::vector<Row>& rows) {
    std::string out =
        "experiment,policy,placement,seed,response_s,response_sd_s,published_response_s,wait_s,"
        "run_s,overhead_s,utilisation,background,running_max,moves,freezes,end_s\n";
    for (const Row& r : rows)
        for (size_t i = 0; i < r.seeds.size(); ++i) {
            const co::Figures& f = r.seeds[i];
            out += fmt::format(
                "{},{},{},{},{:.6g},{:.6g},{},{:.6g},{:.6g},{:.6g},{:.6g},{:.6g},{},"
                "{},{},{:.6g}\n",
                r.experiment->number, r.policy, r.placement, i + 1, f.response_s, f.response_sd_s,
                r.experiment->response.mean_s, f.wait_s, f.run_s, f.overhead_s, f.utilisation,
                f.background, f.running_max, f.moves, f.freezes, f.end_s);
        }
    return out;
}

std::string json_text(const std::vector<Row>& rows) {
    nlohmann::ordered_json out = nlohmann::ordered_json::array();
    for (const Row& r : rows) {
        const MeanEstimate response = r.response();
        using F = const co::Figures&;
        out.push_back({{"experiment", r.experiment->number},
                       {"policy", r.policy},
                       {"placement", r.placement},
                       {"seeds", r.seeds.size()},
                       {"response_s", response.mean},
                       {"response_half_interval_s", response.half},
                       {"response_sd_s", r.of([](F f) { return f.response_sd_s; }).mean},
                       {"published_response_s", r.experiment->response.mean_s},
                       {"published_response_sd_s", r.experiment->response.deviation_s},
                       {"as_published", r.published},
                       {"run_s", r.of([](F f) { return f.run_s; }).mean},
                       {"utilisation", r.of([](F f) { return f.utilisation; }).mean},
                       {"end_s", r.of([](F f) { return f.end_s; }).mean}});
    }
    return out.dump(2) + "\n";
}

Result<StudyText> experiments_study(const CoallocationOptions& o) {
    std::vector<Row> rows;
    std::vector<std::string> policies = o.policies;
    if (policies.empty()) policies = {as_published, market, market_anywhere};
    for (const int number : o.experiments)
        for (const std::string& policy : policies)
            for (const std::string& placement : o.placements) {
                if (by_market(policy) && placement != o.placements.front()) continue;
                const co::Experiment& e = co::experiments()[static_cast<size_t>(number) - 1];
                TRY_ASSIGN(Row row, run_row(o, e, policy, placement));
                rows.push_back(std::move(row));
            }
    return StudyText{table(rows), csv_text(rows), json_text(rows)};
}

Status coallocation(const CoallocationOptions& o) {
    TRY_ASSIGN(const StudyText text, o.log.empty() ? experiments_study(o) : log_study(o));
    sim::OutputFiles files;
    if (!o.log.empty()) files.spare(o.log);
    if (!o.json.empty() && o.json != "-") TRY(files.add(o.json, text.json));
    if (!o.csv.empty() && o.csv != "-") TRY(files.add(o.csv, text.csv));
    TRY(files.commit());
    return print(o.json == "-" ? text.json : o.csv == "-" ? text.csv : text.table);
}

template <class Entries>
std::vector<std::string> names_of(const Entries& entries) {
    std::vector<std::string> out;
    for (const auto& entry : entries) out.emplace_back(entry.name);
    return out;
}

std::vector<Option> study_options(CoallocationOptions& o) {
    std::vector<std::string> known = names_of(co::policies());
    for (const char* name : {as_published, market, market_anywhere, solver_anywhere})
        known.emplace_back(name);
    // Milliseconds, which are said in seconds.
    const Kind<int64_t> step{
        "TIME", [](const std::string& text) {
            return seconds(0, 86'400).read(text).map([](int64_t s) { return s * 1000; });
        }};
    std::vector<Option> rows = {
        option(0, "experiments", o.experiments, whole(1, 5), "which, with commas: 1 to 5"),
        option(0, "policies", o.policies, one_of(known),
               "with commas; published: the one of the experiment; market_anywhere: as market, "
               "and the components of ordered jobs may be in any cluster; solver_anywhere: so "
               "too, decided by the solver of marketd"),
        option(0, "placements", o.placements, one_of(names_of(co::placements())), "with commas",
               Default::shown),
        option(0, "seeds", o.seeds, whole(1, 10'000),
               "so many, from 1 on: means and 95 % confidence intervals", Default::shown),
        option(0, "slowdown", o.slowdown, real(1, 1.5),
               "a job in several clusters runs so many times as long as in one", Default::shown),
        option(0, "overtakes", o.overtakes_max, whole(0, 1'000'000),
               "bounded_overtaking: how often a job is passed", Default::shown),
        option(0, "depth", o.depth, whole(1, 1'000'000),
               "conservative: how many jobs have a reservation", Default::shown),
        option(0, "move", o.terms.move_ms, step,
               "market: seconds of a move, in which its job stands still"),
        option(0, "freeze", o.terms.freeze_ms, step, "market: seconds of a freeze"),
        option(0, "thaw", o.terms.thaw_ms, step, "market: seconds of a thaw"),
        option(0, "others-large", o.background.others_large, whole(0, 144),
               "processors of the cluster of 144 that others use", Default::shown),
        option(0, "others-small", o.background.others_small, whole(0, 64),
               "processors of each cluster of 64 that others use", Default::shown),
        option(0, "json", o.json, file_name(),
               "write the figures to this file as JSON (-: to stdout, instead of the table)"),
        option(0, "csv", o.csv, file_name(),
               "write the figures to this file as CSV, a line a seed (-: to stdout)")};
    for (size_t i = 7; i < 10; ++i) rows[i].usual = "5";
    return rows;
}

std::vector<Option> job_log_options(CoallocationOptions& o) {
    const auto processors = whole(1, 1'000'000);
    return {option(0, "log", o.log, file_name(),
                   "in place of the experiments: a job log (Standard Workload Format), split into "
                   "components"),
            option(0, "clusters", o.clusters, processors, "log: processors of each, with commas",
                   Default::shown),
            option(0, "requests", o.requests, one_of({"ordered", "unordered", "flexible", "total"}),
                   "log: ordered, unordered, flexible or total", Default::shown),
            option(0, "limit", o.log_terms.limit, processors,
                   "log: the most processors of a component", Default::shown),
            option(0, "jobs", o.log_terms.jobs, whole(100, 1'000'000), "log: so many are drawn",
                   Default::shown),
            option(0, "seed", o.log_terms.seed, whole(0, INT64_MAX), "log: of what is drawn",
                   Default::shown),
            option(0, "run-max", o.log_terms.run_max_s, seconds(1, int64_t{1} << 30),
                   "log: longer runs are cut (seconds, or 2h)", Default::shown),
            option(0, "loads", o.loads, real(0.01, 10),
                   "log: shares of all processors that arrive as work", Default::shown),
            option(0, "values", o.values, one_of({"worth", "drawn"}),
                   "log, market: worth (each job is worth the same to its user, who bids that by "
                   "its size and estimate) or drawn (10 to 60)",
                   Default::shown)};
}

}  // namespace

int marketsim_coallocation(int argc, char** argv) {
    CoallocationOptions options;
    CommandLine line{
        .tool = "marketsim coallocation",
        .summary =
            "Jobs of several components over clusters: the five experiments of the "
            "reference co-allocator beside what was published, or a job log under each "
            "policy.",
        .options = study_options(options)};
    for (Option& row : job_log_options(options)) line.options.push_back(std::move(row));
    if (const auto status = parse_options(line, argc, argv)) return *status;
    options.terms.slowdown = std::llround(options.slowdown * 1000);
    return exit_status(line, coallocation(options));
}

}  // namespace souk::tools
