// SPDX-License-Identifier: GPL-2.0-or-later
// marketsim compare: every combination of solvers, pricings and parameters over one workload, in
// parallel over the cores. The results are kept in the order of the combinations, so the output
// does not depend on who is done first.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "market/sim/estimate.hpp"
#include "market/sim/files.hpp"
#include "market/sim/plot.hpp"
#include "market/sim/value_classes.hpp"
#include "tools/common/cli_units.hpp"
#include "tools/marketsim/cli.hpp"
#include "tools/marketsim/gnuplot.hpp"
#include "tools/marketsim/market_options.hpp"
#include "tools/marketsim/outside_solver.hpp"
#include "tools/marketsim/verbs.hpp"

namespace souk::tools {
namespace {

using namespace sim;

constexpr size_t variants_max = 256;

struct Options {
    std::string jobs, providers, import, out, json, csv, plot;
    size_t seeds = 1;
    std::vector<std::string> solvers{"greedy_migration", "proportional_share"},
        pricings{"critical"};
    // by line of the solver's table of options; empty: the default
    std::vector<std::vector<int64_t>> solver_options{market::solver_option_table().size()};
    std::vector<int64_t> networks{100}, disks{100};
    int64_t alpha_s = 10;
    unsigned threads = 0;
};

struct Variant {
    std::string name;
    MarketRunOptions run;
    RunOutcome outcome;              // of the first seed
    std::vector<RunReport> reports;  // one for each seed
    std::string error;
    const RunReport& report() const { return reports.front(); }
};

// A parameter of which every value is tried, with the algorithm or pricing that looks at it (none:
// all do).
struct Parameter {
    std::string_view name;
    std::vector<int64_t> values;
    std::function<void(MarketRunOptions& run, int64_t value)> set;
    std::string_view of = "";
    int64_t unit = 1;  // of a value, as a variant's name shows it
};

std::vector<Parameter> parameters_of(const Options& o) {
    std::vector<Parameter> all;
    const auto table = market::solver_option_table();
    for (size_t i = 0; i < table.size(); ++i) {
        const market::SolverOption& option = table[i];
        const std::vector<int64_t>& given = o.solver_options[i];
        const bool time = option.kind == market::SolverOption::Kind::time;
        all.push_back({option.name,
                       given.empty() ? std::vector{option.get(market::SolverOptions{})} : given,
                       [&option](MarketRunOptions& r, int64_t v) { option.set(r.solver, v); },
                       option.of, time ? 1'000'000'000 : 1});
    }
    all.push_back(
        {"network", o.networks, [](MarketRunOptions& r, int64_t v) { r.network_mb_per_s = v; }});
    all.push_back({"disk", o.disks, [](MarketRunOptions& r, int64_t v) { r.disk_mb_per_s = v; }});
    return all;
}

// Every combination; the last parameter changes fastest.
std::vector<Variant> variants_of(const Options& o) {
    const std::vector<Parameter> parameters = parameters_of(o);
    std::vector<Variant> out;
    for (const std::string& solver : o.solvers)
        for (const std::string& pricing : o.pricings) {
            Variant one;
            (void)set_decider(one.run, solver);  // it was checked
            const std::string& name = decided_by(one.run);
            one.name = name + "/" + pricing;
            one.run.solver.pricing = pricing;
            one.run.record = !o.plot.empty();
            std::vector<Variant> some{one};
            for (const Parameter& p : parameters) {
                const bool matters = p.of.empty() || p.of == name || p.of == pricing;
                std::vector<Variant> more;
                for (const Variant& v : some)
                    for (const int64_t& value : p.values) {
                        if (!matters && &value != &p.values.front()) break;
                        if (more.size() > variants_max) break;  // too many already
                        Variant& next = more.emplace_back(v);
                        if (matters && p.values.size() > 1)
                            next.name += fmt::format(" {}={}", p.name, value / p.unit);
                        p.set(next.run, value);
                    }
                some = std::move(more);
            }
            for (Variant& v : some) out.push_back(std::move(v));
        }
    return out;
}

// A bar on stderr while the runs go on; silent where stderr is no terminal.
class Progress {
  public:
    explicit Progress(size_t total) : total_(total), visible_(isatty(STDERR_FILENO) != 0) {
        if (visible_) draw();
    }
    ~Progress() {
        if (visible_) std::fputs("\r\033[K", stderr);
    }
    void one_done() {
        const std::lock_guard lock(mutex_);
        ++done_;
        if (visible_) draw();
    }

  private:
    void draw() const {
        constexpr size_t width = 40;
        const size_t full = done_ * width / total_;
        std::fprintf(stderr, "\r[%s%s] %zu of %zu", std::string(full, '#').c_str(),
                     std::string(width - full, '.').c_str(), done_, total_);
        std::fflush(stderr);
    }
    std::mutex mutex_;
    size_t done_ = 0;
    const size_t total_;
    const bool visible_;
};

// The jobs and providers of each seed.
Result<std::vector<Imported>> workloads_of(const Options& o) {
    std::vector<Imported> out;
    if (o.import.empty()) {
        Imported& files = out.emplace_back();
        TRY_ASSIGN(files.jobs, read_jobs(o.jobs));
        TRY_ASSIGN(files.providers, read_providers(o.providers));
        return out;
    }
    TRY_ASSIGN(ImportConfig config, read_import_config(o.import));
    SwfTrace trace;
    if (config.use_swf) {
        TRY_ASSIGN(trace, read_swf(config.trace));
    }
    for (size_t i = 0; i < o.seeds; ++i, ++config.seed) {
        Result<Imported> drawn =
            config.use_swf ? import_trace(trace, config) : draw_workload(config);
        if (!drawn) return wrap(o.import, std::move(drawn).error());
        out.push_back(std::move(*drawn));
    }
    return out;
}

void run_all(std::vector<Variant>& variants, const std::vector<Imported>& workloads,
             const Options& options) {
    const size_t cores =
        std::max(1u, options.threads ? options.threads : std::thread::hardware_concurrency());
    const size_t runs = variants.size() * workloads.size();
    Progress progress(runs);
    std::vector<std::string> errors(runs);
    for (Variant& v : variants) v.reports.resize(workloads.size());
    std::atomic<size_t> next{0};
    const auto work = [&] {
        for (size_t i; (i = next++) < runs;) {
            const size_t seed = i % workloads.size();
            Variant& v = variants[i / workloads.size()];
            const Imported& w = workloads[seed];
            MarketRunOptions run = v.run;
            run.record = v.run.record && seed == 0;
            Result<RunOutcome> outcome = run_market(w.jobs, w.providers, run);
            if (outcome) {
                v.reports[seed] = report_of(w.jobs, w.providers.size(), *outcome, options.alpha_s);
                if (seed == 0) v.outcome = std::move(*outcome);
            } else {
                errors[i] = outcome.error().message;
            }
            progress.one_done();
        }
    };
    std::vector<std::thread> threads;
    threads.reserve(cores);
    for (size_t i = 1; i < std::min(cores, runs); ++i) threads.emplace_back(work);
    work();
    for (std::thread& thread : threads) thread.join();
    for (size_t i = runs; i-- > 0;)
        if (!errors[i].empty()) variants[i / workloads.size()].error = errors[i];
}

// Over several seeds: every figure with the half width of its 95 % confidence interval, a line
// each.
std::string estimates_table(const std::vector<Variant>& variants, size_t seeds) {
    std::string out = fmt::format(
        "means over {} seeds, with the half width of their 95 % confidence intervals\n", seeds);
    for (const Variant& v : variants) {
        out += "\n" + v.name + "\n";
        if (!v.error.empty()) {
            out += "  failed: " + v.error + "\n";
            continue;
        }
        for (const Figure& f : figures()) {
            const Estimate e = estimate(v.reports, f);
            out +=
                fmt::format("  {:<26} {:>16.6g} +- {:.4g}\n", f.name, e.mean, e.half.value_or(0));
        }
    }
    return out;
}

// A line for each variant: each figure, and the half width of its interval (empty with one seed).
std::string csv_text(const std::vector<Variant>& variants) {
    std::string out = "variant,seeds";
    for (const Figure& f : figures()) out += fmt::format(",{0},{0}_ci95", f.name);
    out += "\n";
    for (const Variant& v : variants) {
        if (!v.error.empty()) continue;
        std::string name;
        for (const char c : v.name) name += c == '"' ? std::string("\"\"") : std::string(1, c);
        out += fmt::format("\"{}\",{}", name, v.reports.size());
        for (const Figure& f : figures()) {
            const Estimate e = estimate(v.reports, f);
            out += fmt::format(",{:.10g},{}", e.mean, e.half ? fmt::format("{:.6g}", *e.half) : "");
        }
        out += "\n";
    }
    return out;
}

std::string table(const std::vector<Variant>& variants, const std::vector<ValueClass>& classes) {
    size_t width = 8;
    for (const Variant& v : variants) width = std::max(width, v.name.size());
    std::string out = fmt::format(
        "{:<{}} {:>9} {:>9} {:>14} {:>13} {:>13} {:>13} {:>7} {:>9} {:>9} {:>11} {:>10}\n",
        "variant", width, "slowdown", "bounded", "WCT", "welfare", "consumers", "providers", "util",
        "migr", "freezes", "moved MB", "unfinished");
    for (const Variant& v : variants) {
        const RunReport& r = v.report();
        if (!v.error.empty()) {
            out += fmt::format("{:<{}} failed: {}\n", v.name, width, v.error);
            continue;
        }
        out += fmt::format(
            "{:<{}} {:>9.3f} {:>9.3f} {:>14.0f} {:>13} {:>13} {:>13} {:>7.4f} {:>9} {:>9} {:>11} "
            "{:>10}\n",
            v.name, width, r.slowdown, r.bounded_slowdown, r.weighted_completion_s,
            format_money(r.welfare), format_money(r.consumers_surplus),
            format_money(r.providers_surplus), r.utilisation, r.moves_total, r.freezes_total,
            r.moved_mb, r.unfinished);
    }
    for (const bool bounded : {false, true}) {
        out += bounded ? "\nbounded slowdown by value\n" : "\nslowdown by value\n";
        out += fmt::format("{:<{}}", "variant", width);
        for (const ValueClass& c : classes) out += fmt::format(" {:>12}", c.name());
        out += '\n';
        for (const Variant& v : variants) {
            if (!v.error.empty()) continue;
            out += fmt::format("{:<{}}", v.name, width);
            for (const ValueClass& c : classes) {
                const ClassMeans m = means_in(v.report(), c);
                out += m.jobs == 0 ? fmt::format(" {:>12}", "-")
                                   : fmt::format(" {:>12.3f}", bounded ? m.bounded : m.slowdown);
            }
            out += '\n';
        }
    }
    return out;
}

std::string json_text(const std::vector<Variant>& variants, int64_t alpha_s) {
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    for (const Variant& v : variants) {
        nlohmann::ordered_json one = {{"variant", v.name}};
        if (v.error.empty())
            one.update(nlohmann::ordered_json::parse(report_json(v.report(), v.run, alpha_s)));
        else
            one["error"] = v.error;
        if (v.error.empty() && v.reports.size() > 1) {
            nlohmann::ordered_json over_seeds = {{"seeds", v.reports.size()}};
            for (const Figure& f : figures()) {
                const Estimate e = estimate(v.reports, f);
                over_seeds[f.name] = {{"mean", e.mean}, {"ci95", *e.half}};
            }
            one["over_seeds"] = over_seeds;
        }
        json.push_back(one);
    }
    return json.dump(2) + "\n";
}

Status draw(const std::vector<Variant>& variants, const std::vector<SimJob>& jobs,
            const std::vector<SimProvider>& providers, const std::string& path) {
    const size_t dot = path.rfind('.');
    const std::string stem = path.substr(0, dot), kind = path.substr(dot + 1);
    std::vector<PlotSeries> series;
    for (const Variant& v : variants)
        if (v.error.empty()) series.push_back({v.name, &v.report(), &v.outcome});
    const auto plot = [&](const std::string& name, const auto& script) {
        return gnuplot(stem + "-" + name + "." + kind,
                       [&](const std::string& output) { return script(output); });
    };
    const std::vector<ValueClass> classes = value_classes_of(jobs);
    TRY(plot("value", [&](const std::string& output) {
        return plot_by_value(series, classes, kind, output);
    }));
    TRY(plot("utilisation",
             [&](const std::string& output) { return plot_utilisation(series, kind, output); }));
    for (size_t i = 0; i < series.size(); ++i) {
        if (series[i].outcome->stays.size() > gantt_stays_max ||
            providers.size() > gantt_providers_max)
            continue;
        TRY(plot(fmt::format("gantt-{}", i + 1), [&](const std::string& output) {
            return plot_gantt(series[i], jobs, providers, kind, output);
        }));
    }
    return {};
}

Status compare(const Options& options, std::vector<Variant>& variants) {
    if (!options.plot.empty()) TRY(find_gnuplot());
    TRY_ASSIGN(const std::vector<Imported> workloads, workloads_of(options));
    run_all(variants, workloads, options);
    const Imported& first = workloads.front();
    const std::string text = workloads.size() > 1 ? estimates_table(variants, workloads.size())
                                                  : table(variants, value_classes_of(first.jobs));
    const std::string json = json_text(variants, options.alpha_s);
    OutputFiles files;
    for (const std::string& input : {options.jobs, options.providers, options.import})
        if (!input.empty()) files.spare(input);
    if (!options.csv.empty() && options.csv != "-") TRY(files.add(options.csv, csv_text(variants)));
    if (!options.out.empty()) TRY(files.add(options.out, text));
    if (!options.json.empty() && options.json != "-") TRY(files.add(options.json, json));
    TRY(files.commit());
    TRY(print(options.json == "-" ? json : options.csv == "-" ? csv_text(variants) : text));
    if (!options.plot.empty()) TRY(draw(variants, first.jobs, first.providers, options.plot));
    for (const Variant& v : variants)
        if (!v.error.empty()) return fail(v.name + ": " + v.error);
    return {};
}

}  // namespace

int marketsim_compare(int argc, char** argv) {
    Options options;
    CLI::App app(
        "Several solvers, pricings and parameters over one workload, side by side. Every "
        "combination is run; an option that one solver or pricing alone looks at is varied for "
        "that alone.",
        "marketsim compare");
    auto* jobs = app.add_option("-j,--jobs", options.jobs, "job file");
    auto* providers = app.add_option("-p,--providers", options.providers, "provider file");
    app.add_option("-i,--import", options.import,
                   "in place of both: the configuration of an import, drawn anew for each seed")
        ->excludes(jobs)
        ->excludes(providers);
    app.add_option("--seeds", options.seeds,
                   "with --import: so many seeds, from the configuration's on; means and 95 % "
                   "confidence intervals")
        ->check(CLI::Range(1, 10'000));
    app.add_option("-s,--solvers", options.solvers, std::string("with commas: ") + solvers_help())
        ->delimiter(',')
        ->check(is_decider())
        ->capture_default_str();
    app.add_option("--pricings", options.pricings, "pricings, with commas")
        ->delimiter(',')
        ->transform(is_named(market::Solver::pricing_named))
        ->capture_default_str();
    const auto list = [&](const char* name, std::vector<int64_t>& to, int64_t least, int64_t most,
                          const char* about) {
        return app.add_option(name, to, about)
            ->delimiter(',')
            ->check(CLI::Range(least, most))
            ->capture_default_str();
    };
    const auto table = market::solver_option_table();
    for (size_t i = 0; i < table.size(); ++i)
        add_solver_option(
            app, table[i],
            [&options, i](int64_t value) { options.solver_options[i].push_back(value); }, true,
            table[i].text(table[i].get(market::SolverOptions{})));
    constexpr int64_t rate_most = 1'000'000;
    list("--network", options.networks, 1, rate_most, "MB/s of a migration, with commas");
    list("--disk", options.disks, 1, rate_most, "MB/s of a freeze and of a thaw, with commas");
    app.add_option("--alpha", options.alpha_s,
                   "seconds (or 10m) below which a run does not count in bounded slowdown")
        ->transform(as_seconds())
        ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}))
        ->capture_default_str();
    app.add_option("--threads", options.threads, "runs at a time (default: one for each core)")
        ->check(CLI::Range(1, 1024));
    app.add_option("-o,--out", options.out, "write the table to this file too");
    app.add_option("--json", options.json,
                   "write the figures to this file as JSON (-: to stdout, instead of the table)");
    app.add_option("--csv", options.csv,
                   "write the figures to this file as CSV, a line a variant (-: to stdout)");
    app.add_option("--plot", options.plot,
                   "draw NAME-value, NAME-utilisation and, of small runs, NAME-gantt-N: NAME.svg "
                   "or NAME.png")
        ->check([](const std::string& s) {
            const std::filesystem::path path(s);
            const bool picture = path.extension() == ".svg" || path.extension() == ".png";
            return picture ? "" : "'" + s + "' is neither NAME.svg nor NAME.png";
        });
    if (const auto code = parse_arguments(app, argc, argv)) return *code;
    if (options.import.empty() && (options.jobs.empty() || options.providers.empty()))
        return usage_error(app, "needs --jobs and --providers, or --import");
    if (options.seeds > 1 && options.import.empty())
        return usage_error(
            app, "--seeds needs --import: job and provider files are the same for every seed");
    std::vector<Variant> variants = variants_of(options);
    if (variants.size() > variants_max)
        return usage_error(app, fmt::format("{} combinations, at most {} are run at once",
                                            variants.size(), variants_max));
    for (Variant& v : variants)
        if (const Status valid = check_market_options(v.run); !valid)
            return usage_error(app, valid.error().message);
    if (const Status done = compare(options, variants); !done) return failed(app, done.error());
    return 0;
}

}  // namespace souk::tools
