// SPDX-License-Identifier: GPL-2.0-or-later
// marketsim compare: every combination of solvers, pricings and parameters over one workload, in
// parallel over the cores. The results are kept in the order of the combinations, so the output
// does not depend on who is done first.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/store/sha256.hpp"
#include "market/sim/files.hpp"
#include "market/sim/value_classes.hpp"
#include "tools/common/table.hpp"
#include "tools/marketsim/cli.hpp"
#include "tools/marketsim/compare_report.hpp"
#include "tools/marketsim/gnuplot.hpp"
#include "tools/marketsim/market_options.hpp"
#include "tools/marketsim/outside_solver.hpp"
#include "tools/marketsim/verbs.hpp"

namespace souk::tools {
namespace {

using namespace sim;

constexpr size_t variants_max = 256, file_bytes_max = size_t{4} << 30;

struct CompareOptions {
    std::string jobs, providers, import, out, json, csv, plot, per_job;
    size_t seeds = 1;
    std::vector<std::string> solvers{"greedy_migration", "proportional_share"},
        pricings{"critical"};
    // by line of the solver's table of options; empty: the default
    std::vector<std::vector<int64_t>> solver_options{market::solver_option_table().size()};
    std::vector<int64_t> networks{100}, disks{100};
    int64_t alpha_s = 10;
    std::vector<std::string> strategies, owners;
    int64_t lies = 0;
    double slack = 6;
    bool two_stage = false;
    unsigned threads = 0;
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

std::vector<Parameter> parameters_of(const CompareOptions& o) {
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

// Adds the variant with each mix of strategies, and of owners' prices, that is tried.
void add_mixes(const Variant& one, const CompareOptions& o, std::vector<Variant>& to) {
    std::vector<Variant> some;
    for (const std::string& name : o.strategies) {
        Variant& mixed = some.emplace_back(one);
        if (auto mix = parse_mix(name)) mixed.mix = std::move(*mix);  // it was checked
        mixed.name += " " + name;
    }
    if (o.strategies.empty()) some.push_back(one);
    for (const Variant& v : some) {
        for (const std::string& name : o.owners) {
            Variant& mixed = to.emplace_back(v);
            if (auto mix = parse_owner_mix(name)) mixed.owners = std::move(*mix);  // it was checked
            mixed.run.envy = true;
            mixed.name += " owners=" + name;
        }
        if (o.owners.empty()) to.push_back(v);
    }
}

// Every combination; the last parameter changes fastest.
std::vector<Variant> variants_of(const CompareOptions& o) {
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
            one.run.two_stage = o.two_stage;
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
            for (const Variant& v : some) add_mixes(v, o, out);
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

// The jobs and providers of each seed, and where they are from, for who reads the results.
struct Workloads {
    std::vector<Imported> all;
    std::vector<std::string> seeds;  // their numbers; files have none
    nlohmann::ordered_json told;
};

Status tell_file(nlohmann::ordered_json& to, const std::string& what, const std::string& path) {
    TRY_ASSIGN(const std::string bytes, read_file(AT_FDCWD, path, file_bytes_max));
    to[what] = path;
    to[what + "_sha256"] = sha256_hex(bytes);
    return {};
}

void tell_drawn(nlohmann::ordered_json& to, const Imported& w, const std::string& seed) {
    nlohmann::ordered_json one;
    if (!seed.empty()) one["seed"] = parse_json(seed);
    one["jobs"] = w.jobs.size();
    one["providers"] = w.providers.size();
    if (const auto load = offered_load(w)) one["offered_load"] = *load;
    for (const auto& [name, dropped] : {std::pair{"dropped_no_submit", w.dropped_no_submit},
                                        {"dropped_no_run", w.dropped_no_run},
                                        {"dropped_too_wide", w.dropped_too_wide}})
        if (dropped > 0) one[name] = dropped;
    to["drawn"].push_back(one);
}

Result<Workloads> workloads_of(const CompareOptions& o) {
    Workloads out;
    if (o.import.empty()) {
        Imported& files = out.all.emplace_back();
        TRY_ASSIGN(files.jobs, read_jobs(o.jobs));
        TRY_ASSIGN(files.providers, read_providers(o.providers));
        TRY(tell_file(out.told, "jobs_file", o.jobs));
        TRY(tell_file(out.told, "providers_file", o.providers));
        tell_drawn(out.told, files, out.seeds.emplace_back());
        return out;
    }
    TRY_ASSIGN(ImportConfig config, read_import_config(o.import));
    TRY(tell_file(out.told, "configuration", o.import));
    TRY_ASSIGN(out.told["configuration_text"], read_text(o.import));
    SwfTrace trace;
    if (config.use_swf) {
        TRY_ASSIGN(trace, read_swf(config.trace));
        TRY(tell_file(out.told, "trace", config.trace));
    }
    for (size_t i = 0; i < o.seeds; ++i, ++config.seed) {
        Result<Imported> drawn =
            config.use_swf ? import_trace(trace, config) : draw_workload(config);
        if (!drawn) return wrap(o.import, std::move(drawn).error());
        tell_drawn(out.told, *drawn, out.seeds.emplace_back(std::to_string(config.seed)));
        out.all.push_back(std::move(*drawn));
    }
    return out;
}

// Measures what jobs that the seed draws gain by lies.
Result<Cases> lies_told(const Imported& w, const MarketRunOptions& options, int64_t jobs,
                        size_t seed) {
    std::string error;
    const Runs runs = [&](const Imported& workload, const MarketRunOptions& run) {
        auto outcome = run_market(workload.jobs, workload.providers, run);
        if (outcome) return std::move(*outcome);
        error = outcome.error().message;
        RunOutcome none;
        none.jobs.resize(workload.jobs.size());
        return none;
    };
    MarketRunOptions plain = options;
    plain.record = plain.envy = false;
    Cases cases = cases_of(w, plain, runs, jobs, false, seed + 1);
    if (!error.empty()) return fail("while a job lies: " + error);
    for (Case& c : cases) c.workload = seed;
    return cases;
}

void run_all(std::vector<Variant>& variants, const std::vector<Imported>& workloads,
             const CompareOptions& options) {
    const size_t cores =
        std::max(1u, options.threads ? options.threads : std::thread::hardware_concurrency());
    const size_t runs = variants.size() * workloads.size();
    Progress progress(runs);
    std::vector<std::string> errors(runs);
    for (Variant& v : variants) {
        v.reports.resize(workloads.size());
        v.strategies.resize(workloads.size());
        v.standings.resize(workloads.size());
        if (!options.per_job.empty()) v.per_job.resize(workloads.size());
    }
    std::atomic<size_t> next{0};
    const auto work = [&] {
        for (size_t i; (i = next++) < runs;) {
            const size_t seed = i % workloads.size();
            Variant& v = variants[i / workloads.size()];
            const Imported& w = workloads[seed];
            MarketRunOptions run = v.run;
            run.record = v.run.record && seed == 0;
            if (!v.mix.of.empty()) run.terms = terms_of(w.jobs, v.mix, options.slack, seed + 1);
            if (!v.owners.of.empty()) run.asks = asks_of(w.providers.size(), v.owners, seed + 1);
            Result<RunOutcome> outcome = run_market(w.jobs, w.providers, run);
            if (outcome) {
                v.reports[seed] = report_of(w.jobs, w.providers.size(), *outcome, options.alpha_s);
                if (!v.mix.of.empty())
                    v.strategies[seed] = by_strategy(w.jobs, run.terms, *outcome, options.alpha_s);
                if (!v.owners.of.empty())
                    v.standings[seed] = standing_of(w, run, *outcome, options.alpha_s);
                if (options.lies > 0) {
                    auto told = lies_told(w, run, options.lies, seed);
                    if (!told) errors[i] = told.error().message;
                    if (told) v.standings[seed].cases = std::move(*told);
                }
                if (!options.per_job.empty())
                    v.per_job[seed] = per_job_csv(w.jobs, *outcome, options.alpha_s);
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

Status compare(const CompareOptions& options, std::vector<Variant>& variants) {
    if (!options.plot.empty()) TRY(find_gnuplot());
    TRY_ASSIGN(const Workloads drawn, workloads_of(options));
    const std::vector<Imported>& workloads = drawn.all;
    run_all(variants, workloads, options);
    const Imported& first = workloads.front();
    std::string text = workloads.size() > 1 ? estimates_table(variants, workloads.size())
                                            : table(variants, value_classes_of(first.jobs));
    text += strategies_table(variants) + owners_table(variants);
    const std::string json = json_text(variants, options.alpha_s, drawn.told);
    OutputFiles files;
    for (const std::string& input : {options.jobs, options.providers, options.import})
        if (!input.empty()) files.spare(input);
    if (!options.csv.empty() && options.csv != "-") TRY(files.add(options.csv, csv_text(variants)));
    if (!options.out.empty()) TRY(files.add(options.out, text));
    if (!options.per_job.empty())
        TRY(files.add(options.per_job, per_job_text(variants, drawn.seeds)));
    if (!options.json.empty() && options.json != "-") TRY(files.add(options.json, json));
    TRY(files.commit());
    TRY(print(options.json == "-" ? json : options.csv == "-" ? csv_text(variants) : text));
    if (!options.plot.empty()) TRY(draw(variants, first.jobs, first.providers, options.plot));
    for (const Variant& v : variants)
        if (!v.error.empty()) return fail(v.name + ": " + v.error);
    return {};
}

// The parameters that are tried, each with a list of values.
void add_varied(std::vector<Option>& rows, CompareOptions& options) {
    const auto table = market::solver_option_table();
    for (size_t i = 0; i < table.size(); ++i)
        rows.push_back(solver_option(
            table[i], [&options, i](int64_t value) { options.solver_options[i].push_back(value); },
            true, table[i].text(table[i].get(market::SolverOptions{}))));
    const auto rate = whole(1, 1'000'000);
    rows.push_back(option(0, "network", options.networks, rate, "MB/s of a migration, with commas",
                          Default::shown));
    rows.push_back(option(0, "disk", options.disks, rate,
                          "MB/s of a freeze and of a thaw, with commas", Default::shown));
}

template <class Mix>
Kind<std::string> mix_of(Result<Mix> (*parse)(const std::string& name)) {
    return {"NAME", [parse](const std::string& name) -> Result<std::string> {
                TRY(parse(name));
                return name;
            }};
}

Kind<std::string> picture() {
    return {"FILE", [](const std::string& text) -> Result<std::string> {
                const std::filesystem::path path(text);
                if (path.extension() == ".svg" || path.extension() == ".png") return text;
                return fail("'" + text + "' is neither NAME.svg nor NAME.png");
            }};
}

// The workload, and who decides and asks in it.
std::vector<Option> workload_options(CompareOptions& options, bool& coallocation) {
    return {
        option('j', "jobs", options.jobs, file_name(), "job file"),
        option('p', "providers", options.providers, file_name(), "provider file"),
        option('i', "import", options.import, file_name(),
               "in place of both: the configuration of an import, drawn anew for each seed"),
        option(
            0, "seeds", options.seeds, whole(1, 10'000),
            "with --import: so many seeds, from the configuration's on; means, and how much more "
            "they are than the first variant's seed by seed, with 95 % confidence intervals"),
        option('s', "solvers", options.solvers, decider(),
               lasting("with commas: " + solvers_help()), Default::shown),
        option(0, "pricings", options.pricings, named(market::Solver::pricing_named),
               "pricings, with commas", Default::shown),
        option(0, "strategies", options.strategies, mix_of(parse_mix),
               "with commas: mixes of srun's strategies, each a name or several with + between "
               "them (truthful, pace, deadline, patient), or all; each job draws one of its mix"),
        option(0, "owners", options.owners, mix_of(parse_owner_mix),
               "with commas: how the owners ask: fixed (their reserve), auto (what pvdctl set "
               "price auto learns, at least their reserve), fixed+auto (each draws one)"),
        option(0, "lies", options.lies, whole(1, 1'000),
               "with --owners: so many jobs of each seed tell each lie, one at a time, and what "
               "they gain is said"),
        option(0, "slack", options.slack, real(1.2, 1'000),
               "with --strategies: a job's time is drawn from 1.2 to so many times its run time",
               Default::shown),
        {0, "coallocation", nullptr,
         "as the first option: jobs of several components, the reference's policies beside the "
         "market (the same as marketsim coallocation, with its options)",
         set_flag(coallocation)}};
}

std::vector<Option> output_options(CompareOptions& options) {
    return {option(0, "alpha", options.alpha_s, seconds(1, 1'000'000),
                   "seconds (or 10m) below which a run does not count in bounded slowdown",
                   Default::shown),
            option(0, "threads", options.threads, whole(1, 1024),
                   "runs at a time (default: one for each core)"),
            option('o', "out", options.out, file_name(), "write the table to this file too"),
            option(0, "json", options.json, file_name(),
                   "write the figures to this file as JSON (-: to stdout, instead of the table)"),
            option(0, "csv", options.csv, file_name(),
                   "write the figures to this file as CSV, a line a variant (-: to stdout)"),
            option(0, "per-job", options.per_job, file_name(),
                   "write a line for each job of each variant and seed to this file, as CSV"),
            option(0, "plot", options.plot, picture(),
                   "draw NAME-value, NAME-utilisation and, of small runs, NAME-gantt-N: NAME.svg "
                   "or NAME.png")};
}

}  // namespace

int marketsim_compare(int argc, char** argv) {
    if (argc > 1 && std::string_view(argv[1]) == "--coallocation")
        return marketsim_coallocation(argc - 1, argv + 1);
    CompareOptions options;
    bool coallocation = false;
    CommandLine line{
        .tool = "marketsim compare",
        .summary =
            "Several solvers, pricings and parameters over one workload, side by side. "
            "Every combination is run; an option that one solver or pricing alone looks at "
            "is varied for that alone.",
        .options = workload_options(options, coallocation)};
    add_varied(line.options, options);
    line.options.push_back(two_stage_option(options.two_stage));
    for (Option& row : output_options(options)) line.options.push_back(std::move(row));
    if (const auto status = parse_options(line, argc, argv)) return *status;
    const auto usage = [&](const std::string& why) { return usage_error(line, why); };
    if (coallocation) return usage("--coallocation comes first, and options of its own after it");
    const bool files = !options.jobs.empty() || !options.providers.empty();
    if (files && !options.import.empty()) return usage("--import excludes --jobs and --providers");
    if (options.import.empty() && (options.jobs.empty() || options.providers.empty()))
        return usage("needs --jobs and --providers, or --import");
    if (options.lies > 0 && options.owners.empty()) return usage("--lies needs --owners");
    if (options.seeds > 1 && options.import.empty())
        return usage("--seeds needs --import: job and provider files are the same for every seed");
    std::vector<Variant> variants = variants_of(options);
    if (variants.size() > variants_max)
        return usage(fmt::format("{} combinations, at most {} are run at once", variants.size(),
                                 variants_max));
    for (Variant& v : variants)
        if (const Status valid = check_market_options(v.run); !valid)
            return usage(valid.error().message);
    return exit_status(line, compare(options, variants));
}

}  // namespace souk::tools
