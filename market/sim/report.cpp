// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/sim/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

namespace souk::sim {
namespace {

double bounded(double run, double stay, double alpha) {
    return std::max({run, stay, alpha}) / std::max(run, alpha);
}

// Sums of value x something, in micro-units; the doubles that come out are the nearest to the exact
// sum.
double units(__int128 micro) { return static_cast<double>(micro) / 1e6; }

std::vector<ByValue> by_value_of(std::span<const SimJob> jobs, const RunOutcome& outcome,
                                 double alpha) {
    struct Sums {
        uint32_t jobs = 0;
        double least = INFINITY, slowdown = 0, squares = 0, bounded = 0;
    };
    std::map<Money, Sums> sums;
    const auto slowdown_of = [&](size_t i) {
        return static_cast<double>(outcome.jobs[i].end_s - jobs[i].start_s) /
               static_cast<double>(jobs[i].run_s);
    };
    for (size_t i = 0; i < jobs.size(); ++i) {
        if (outcome.jobs[i].end_s < 0) continue;
        Sums& s = sums[jobs[i].value];
        ++s.jobs;
        s.least = std::min(s.least, slowdown_of(i));
        s.slowdown += slowdown_of(i);
        s.bounded += bounded(static_cast<double>(jobs[i].run_s),
                             static_cast<double>(outcome.jobs[i].end_s - jobs[i].start_s), alpha);
    }
    for (size_t i = 0; i < jobs.size(); ++i) {
        if (outcome.jobs[i].end_s < 0) continue;
        Sums& s = sums[jobs[i].value];
        const double off = slowdown_of(i) - s.slowdown / s.jobs;
        s.squares += off * off;
    }
    std::vector<ByValue> out;
    out.reserve(sums.size());
    for (const auto& [value, s] : sums)
        out.push_back({value, s.jobs, s.least, s.slowdown / s.jobs, s.bounded / s.jobs,
                       std::sqrt(s.squares / s.jobs)});
    return out;
}

double quantile_of(const std::vector<double>& sorted, size_t percent) {
    if (sorted.empty()) return 0;
    return sorted[std::max<size_t>(1, (sorted.size() * percent + 99) / 100) - 1];
}

RunReport::Percentiles percentiles_of(std::vector<double> values) {
    std::ranges::sort(values);
    return {quantile_of(values, 50), quantile_of(values, 95), quantile_of(values, 99)};
}

}  // namespace

RunReport report_of(std::span<const SimJob> jobs, size_t providers, const RunOutcome& outcome,
                    int64_t alpha_s) {
    RunReport r;
    const auto alpha = static_cast<double>(alpha_s);
    r.jobs = static_cast<uint32_t>(jobs.size());
    r.providers = static_cast<uint32_t>(providers);
    __int128 completion = 0, stays = 0;
    MoneySeconds paid;
    double operated = 0;
    std::vector<double> waits, slowdowns;
    for (size_t i = 0; i < jobs.size(); ++i) {
        const JobOutcome& o = outcome.jobs[i];
        r.moves_total += o.moves;
        r.freezes_total += o.freezes + o.thaws;
        r.stops += o.stops;
        r.resumes += o.resumes;
        r.moved_mb += o.moved_mb;
        r.files_mb += o.files_mb;
        paid.micro_s += o.paid.micro_s;
        if (o.end_s < 0) {
            ++r.unfinished;
            continue;
        }
        const int64_t stay = o.end_s - jobs[i].start_s;
        const auto run = static_cast<double>(jobs[i].run_s);
        const double bsd = bounded(run, static_cast<double>(stay), alpha);
        r.run_s += run;
        r.stay_s += static_cast<double>(stay);
        r.slowdown += static_cast<double>(stay) / run;
        r.bounded_slowdown += bsd;
        slowdowns.push_back(bsd);
        waits.push_back(static_cast<double>(o.first_run_s - jobs[i].start_s));
        r.wait_s += waits.back();
        r.operation_s += static_cast<double>(o.operation_s);
        operated += o.moves + o.freezes + o.thaws > 0;
        stays += static_cast<__int128>(jobs[i].value.micro) * stay;
        completion += static_cast<__int128>(jobs[i].value.micro) * (stay - o.lost_s);
        r.weighted_bounded_slowdown += static_cast<double>(jobs[i].value.micro) / 1e6 * bsd;
    }
    const double finished = std::max<double>(1, r.jobs - r.unfinished);
    for (double* sum : {&r.run_s, &r.stay_s, &r.slowdown, &r.bounded_slowdown, &r.wait_s})
        *sum /= finished;
    r.waits = percentiles_of(std::move(waits));
    r.bounded_slowdowns = percentiles_of(std::move(slowdowns));
    r.moves = static_cast<double>(r.moves_total) / std::max<double>(1, r.jobs);
    r.freezes = static_cast<double>(r.freezes_total) / std::max<double>(1, r.jobs);
    r.operation_s /= std::max(1.0, operated);
    r.concurrent_moves_max = outcome.totals.concurrent_moves_max;
    r.concurrent_freezes_max = outcome.totals.concurrent_freezes_max;
    r.weighted_completion_s = units(completion);
    r.weighted_stay_s = units(stays);
    if (outcome.totals.offered_cpu_s > 0)
        r.utilisation = static_cast<double>(outcome.totals.busy_cpu_s) /
                        static_cast<double>(outcome.totals.offered_cpu_s);
    r.consumers_surplus = outcome.totals.consumers.money();
    r.providers_surplus = outcome.totals.providers.money();
    r.welfare = r.consumers_surplus + r.providers_surplus;
    r.paid = paid.money();
    r.end_s = outcome.totals.end_s;
    r.by_value = by_value_of(jobs, outcome, alpha);
    return r;
}

std::string summary_text(const RunReport& r, const MarketRunOptions& options) {
    std::string out;
    const auto line = [&](const char* name, const std::string& value) {
        fmt::format_to(std::back_inserter(out), "{:<38}{}\n", name, value);
    };
    line("solver", decided_by(options) + ", " + options.solver.pricing + " pricing");
    line("jobs", fmt::format("{}", r.jobs));
    if (r.unfinished > 0) line("unfinished jobs", fmt::format("{} (in no average)", r.unfinished));
    line("providers", fmt::format("{}", r.providers));
    line("migration speed", fmt::format("{} MB/s", options.network_mb_per_s));
    line("freeze speed", fmt::format("{} MB/s", options.disk_mb_per_s));
    line("avg runtime", fmt::format("{:.4f} s", r.run_s));
    line("avg slowdown", fmt::format("{:.4f}", r.slowdown));
    line("avg bounded slowdown", fmt::format("{:.4f}", r.bounded_slowdown));
    line("avg migrations", fmt::format("{:.4f}", r.moves));
    line("avg freezes", fmt::format("{:.4f}", r.freezes));
    line("avg migrate-and-freeze time", fmt::format("{:.4f} s", r.operation_s));
    line("max concurrent migrations", fmt::format("{}", r.concurrent_moves_max));
    line("max concurrent freezes", fmt::format("{}", r.concurrent_freezes_max));
    line("moved", fmt::format("{} MB", r.moved_mb));
    if (r.files_mb > 0) line("files over the network", fmt::format("{} MB", r.files_mb));
    line("weighted completion time (WCT)", fmt::format("{}", r.weighted_completion_s));
    line("weighted stay time", fmt::format("{}", r.weighted_stay_s));
    line("weighted bounded slowdown", fmt::format("{:.2f}", r.weighted_bounded_slowdown));
    line("utilisation", fmt::format("{:.4f}", r.utilisation));
    line("consumers' surplus", format_money(r.consumers_surplus));
    line("providers' surplus", format_money(r.providers_surplus));
    line("social welfare", format_money(r.welfare));
    line("last event", fmt::format("{} s", r.end_s));
    out +=
        "\nperformance by value\nmin slowdown       value    slowdown  bounded slowdown      jobs  "
        " deviation\n";
    for (const ByValue& v : r.by_value)
        fmt::format_to(std::back_inserter(out),
                       "{:>12.2f}{:>12}{:>12.2f}{:>18.2f}{:>10}{:>12.2f}\n", v.slowdown_min,
                       format_money(v.value), v.slowdown, v.bounded_slowdown, v.jobs, v.deviation);
    return out;
}

std::string per_job_csv(std::span<const SimJob> jobs, const RunOutcome& outcome, int64_t alpha_s) {
    std::string out =
        "id,value,cpus,memory_mb,user,start_s,run_s,first_run_s,end_s,stay_s,slowdown,bounded_"
        "slowdown,migrations,"
        "freezes,thaws,operation_s,moved_mb,paid\n";
    for (size_t i = 0; i < jobs.size(); ++i) {
        const SimJob& j = jobs[i];
        const JobOutcome& o = outcome.jobs[i];
        fmt::format_to(std::back_inserter(out), "{},{},{},{},{},{},{},", j.id,
                       format_money(j.value), j.cpus, j.memory_mb, j.user, j.start_s, j.run_s);
        if (o.first_run_s >= 0) out += std::to_string(o.first_run_s);
        if (o.end_s >= 0) {
            const auto run = static_cast<double>(j.run_s),
                       stay = static_cast<double>(o.end_s - j.start_s);
            fmt::format_to(std::back_inserter(out), ",{},{},{:.6f},{:.6f}", o.end_s,
                           o.end_s - j.start_s, stay / run,
                           bounded(run, stay, static_cast<double>(alpha_s)));
        } else {
            out += ",,,,";
        }
        fmt::format_to(std::back_inserter(out), ",{},{},{},{},{},{}\n", o.moves, o.freezes, o.thaws,
                       o.operation_s, o.moved_mb, format_money(o.paid.money()));
    }
    return out;
}

}  // namespace souk::sim
