// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/marketsim/compare_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <sstream>

#include "kernel/base/version.hpp"
#include "market/core/algorithm.hpp"
#include "market/sim/estimate.hpp"
#include "market/sim/plot.hpp"
#include "tools/common/table.hpp"
#include "tools/marketsim/gnuplot.hpp"
#include "tools/marketsim/market_options.hpp"

namespace souk::tools {

using namespace sim;

namespace {

// A reader takes "easy" for what a batch system does, which does not know run times.
std::string note_on_run_times(const std::vector<Variant>& variants) {
    std::string out;
    for (const market::AlgorithmEntry& one : market::algorithm_registry()) {
        const bool there = std::ranges::any_of(
            variants, [&](const Variant& v) { return decided_by(v.run) == one.name; });
        if (there && one.looks_ahead)
            out += fmt::format("{}{} knows the true run time of each job, as no scheduler does\n",
                               out.empty() ? "\n" : "", one.name);
    }
    return out;
}

// The variant that others are compared with, seed by seed: the first, unless it failed.
const Variant* base_of(const std::vector<Variant>& variants) {
    const Variant& first = variants.front();
    return first.error.empty() && first.reports.size() > 1 ? &first : nullptr;
}

}  // namespace

std::string estimates_table(const std::vector<Variant>& variants, size_t seeds) {
    std::string out = fmt::format(
        "means over {} seeds, with the half width of their 95 % confidence intervals\n", seeds);
    const Variant* const base = base_of(variants);
    if (base && variants.size() > 1)
        out += fmt::format(
            "and how much more that is than {}, seed by seed (*: the interval of "
            "the difference leaves out 0)\n",
            base->name);
    for (const Variant& v : variants) {
        out += "\n" + v.name + "\n";
        if (!v.error.empty()) {
            out += "  failed: " + v.error + "\n";
            continue;
        }
        for (const Figure& f : figures()) {
            const Estimate e = estimate(v.reports, f);
            const std::string figure =
                fmt::format("{:>16.6g} +- {:.4g} {}", e.mean, e.half.value_or(0), f.unit);
            out += fmt::format("  {:<26} {}", f.name, figure);
            if (base && &v != base) {
                const Estimate more = difference(v.reports, base->reports, f);
                out += fmt::format("{}{:+.4g} +- {:.4g}{}",
                                   std::string(figure.size() < 50 ? 50 - figure.size() : 2, ' '),
                                   more.mean, more.half.value_or(0), is_clear(more) ? " *" : "");
            }
            while (out.back() == ' ') out.pop_back();
            out += '\n';
        }
    }
    return out + note_on_run_times(variants);
}

namespace {

std::string csv_name(const Variant& v) {
    std::string name;
    for (const char c : v.name) name += c == '"' ? std::string("\"\"") : std::string(1, c);
    return name;
}

}  // namespace

std::string csv_text(const std::vector<Variant>& variants) {
    std::string out = "variant,seeds";
    for (const Figure& f : figures()) out += fmt::format(",{0},{0}_ci95", f.name);
    out += "\n";
    for (const Variant& v : variants) {
        if (!v.error.empty()) continue;
        out += fmt::format("\"{}\",{}", csv_name(v), v.reports.size());
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
    out += note_on_run_times(variants);
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

namespace {

// These are figures of one strategy, over the seeds in which a job had it.
struct StrategyFigures {
    Estimate jobs, unfinished, price, slowdown, in_time;
};
std::map<market::Strategy, StrategyFigures> strategies_of(const Variant& v) {
    std::map<market::Strategy, std::array<std::vector<double>, 5>> values;
    for (const auto& seed : v.strategies)
        for (const ByStrategy& row : seed) {
            auto& to = values[row.strategy];
            const double figures[] = {double(row.jobs), double(row.unfinished), row.price,
                                      row.bounded_slowdown, row.in_time};
            for (size_t i = 0; i < to.size(); ++i) to[i].push_back(figures[i]);
        }
    std::map<market::Strategy, StrategyFigures> all;
    for (const auto& [strategy, of] : values)
        all[strategy] = {estimate(of[0]), estimate(of[1]), estimate(of[2]), estimate(of[3]),
                         estimate(of[4])};
    return all;
}

}  // namespace

std::string strategies_table(const std::vector<Variant>& variants) {
    size_t width = 8;
    for (const Variant& v : variants) width = std::max(width, v.name.size());
    std::string out;
    for (const Variant& v : variants) {
        if (v.mix.of.empty() || !v.error.empty()) continue;
        if (out.empty())
            out = fmt::format(
                "\nby strategy: paid for a standard CPU-hour, in time of all\n"
                "{:<{}} {:<9} {:>9} {:>10} {:>22} {:>22} {:>22}\n",
                "variant", width, "strategy", "jobs", "unfinished", "price", "bounded slowdown",
                "in time");
        for (const auto& [strategy, f] : strategies_of(v)) {
            const auto with_half = [](const Estimate& e, int digits) {
                return e.half ? fmt::format("{:.{}f} +- {:.{}f}", e.mean, digits, *e.half, digits)
                              : fmt::format("{:.{}f}", e.mean, digits);
            };
            out += fmt::format("{:<{}} {:<9} {:>9.0f} {:>10.0f} {:>22} {:>22} {:>22}\n", v.name,
                               width, to_string(strategy), f.jobs.mean, f.unfinished.mean,
                               with_half(f.price, 3), with_half(f.slowdown, 2),
                               with_half(f.in_time, 3));
        }
    }
    return out;
}

std::string per_job_text(const std::vector<Variant>& variants,
                         const std::vector<std::string>& seeds) {
    std::string out;
    for (const Variant& v : variants)
        for (size_t i = 0; i < v.per_job.size(); ++i) {
            std::istringstream lines(v.per_job[i]);
            std::string line;
            if (std::getline(lines, line) && out.empty()) out = "variant,seed," + line + "\n";
            while (std::getline(lines, line))
                out += fmt::format("\"{}\",{},{}\n", csv_name(v), seeds[i], line);
        }
    return out;
}

std::string json_text(const std::vector<Variant>& variants, int64_t alpha_s,
                      const nlohmann::ordered_json& workload) {
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    const Variant* const base = base_of(variants);
    for (const Variant& v : variants) {
        nlohmann::ordered_json one = {{"variant", v.name}};
        if (!v.error.empty())
            one["error"] = v.error;
        else if (v.reports.size() == 1)
            one.update(parse_json(report_json(v.report(), v.run, alpha_s)));
        if (v.error.empty() && v.reports.size() > 1) {
            const nlohmann::ordered_json settings = settings_json(v.run, alpha_s);
            one.update(settings);
            nlohmann::ordered_json over_seeds = {{"seeds", v.reports.size()}};
            for (const Figure& f : figures()) {
                const Estimate e = estimate(v.reports, f);
                over_seeds[f.name] = {{"mean", e.mean}, {"ci95", *e.half}};
            }
            one["over_seeds"] = over_seeds;
            if (base && &v != base) {
                nlohmann::ordered_json more = {{"than", base->name}};
                for (const Figure& f : figures()) {
                    const Estimate e = difference(v.reports, base->reports, f);
                    more[f.name] = {{"mean", e.mean}, {"ci95", *e.half}};
                }
                one["more_by_seed"] = more;
            }
            one["by_seed"] = nlohmann::ordered_json::array();
            for (const RunReport& report : v.reports) {
                nlohmann::ordered_json seed = parse_json(report_json(report, v.run, alpha_s));
                for (const auto& setting : settings.items()) seed.erase(setting.key());
                one["by_seed"].push_back(seed);
            }
        }
        if (v.error.empty() && !v.mix.of.empty()) {
            nlohmann::ordered_json rows = nlohmann::ordered_json::array();
            const auto figure = [](const Estimate& e) {
                nlohmann::ordered_json found = {{"mean", e.mean}};
                if (e.half) found["ci95"] = *e.half;
                return found;
            };
            for (const auto& [strategy, f] : strategies_of(v))
                rows.push_back({{"strategy", to_string(strategy)},
                                {"jobs", figure(f.jobs)},
                                {"unfinished", figure(f.unfinished)},
                                {"price", figure(f.price)},
                                {"bounded_slowdown", figure(f.slowdown)},
                                {"in_time", figure(f.in_time)}});
            one["by_strategy"] = rows;
        }
        if (v.error.empty() && !v.owners.of.empty()) one["by_owners"] = owners_json(v);
        json.push_back(one);
    }
    const nlohmann::ordered_json all = {
        {"marketsim", version()}, {"workload", workload}, {"variants", json}};
    return all.dump(2) + "\n";
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

}  // namespace souk::tools
