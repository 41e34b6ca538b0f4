// SPDX-License-Identifier: GPL-2.0-or-later
// Lies over time: what a job of a recorded workload gains by a false bid, by coming late or early,
// by a bid that changes once it runs, or by a split of its CPUs into jobs (lies.hpp), as a part of
// what the truthful job pays. Two questions that are easily mixed up:
//
// - In hindsight: which of all lies would have been the best for this job. A market of many jobs is
//   chaotic: whatever changes, all that comes after it changes. So the best of many changes gains
//   something even if none of them is a lie. The controls say how much.
// - Beforehand: what one lie gains that is chosen without knowing the future. The lie is chosen on
//   one half of the stretches, as the one that gains most there on average (or the truth, if none
//   gains), and told on the other half; then the other way round. A split is not among these: who
//   can be split is another job than who cannot, and says so by it. It has a column of its own.
#include <algorithm>
#include <atomic>
#include <thread>

#include "market/sim/lies.hpp"
#include "tests/study/study.hpp"

namespace souk::study {
namespace {

using namespace sim;

struct Market {
    const char* algorithm;
    int64_t horizon_s, min_stay_s, price_window_s = 0;

    sim::MarketRunOptions options() const {
        sim::MarketRunOptions o;
        o.solver.algorithm = algorithm;
        o.solver.quantum = Nanos::from_s(600);  // shorter turns are all freezes and thaws
        o.solver.horizon = Nanos::from_s(horizon_s);
        o.solver.min_stay = Nanos::from_s(min_stay_s);
        o.price_window_s = price_window_s;
        return o;
    }
};

// The best of all changes, or none of them, for each job.
template <class Changes>
Mean best_of(const Cases& cases, size_t measure, Changes changes) {
    Mean best;
    for (const Case& c : cases) {
        if (changes(c).empty()) continue;
        double most = 0;
        for (const auto& change : changes(c)) {
            if constexpr (requires { change.gains; })
                most = std::max(most, percent(c, change.gains, measure));
            else
                most = std::max(most, percent(c, change, measure));
        }
        best.add(c.workload, most);
    }
    return best;
}

std::vector<std::string> row(const Market& market, const Cases& cases, size_t measure) {
    const Chosen all = chosen(cases, measure);
    std::string names;
    for (const std::string& name : all.names) names += (names.empty() ? "" : "; ") + name;
    Mean worst, split;
    for (size_t n = 0; n < std::size(lies); ++n)
        if (const Mean one = by_lie(cases, measure)[n]; splits(n) && one.mean() > split.mean())
            split = one;
    std::string worst_class;
    for (size_t q = 0; q < quarters.size(); ++q) {
        Cases some;
        for (const Case& c : cases)
            if (quarter_of(c.value) == q) some.push_back(c);
        const Mean one = chosen(some, measure).percent_of_job;
        if (worst.empty() || one.mean() > worst.mean())
            worst = one, worst_class = quarters[q] + std::string(": ");
    }
    return {market.algorithm,
            std::to_string(market.horizon_s),
            std::to_string(market.min_stay_s),
            std::to_string(market.price_window_s),
            std::to_string(cases.size()),
            best_of(
                cases, measure, [](const Case& c) -> auto& { return c.by_lies; })
                .text(),
            best_of(
                cases, measure, [](const Case& c) -> auto& { return c.by_others; })
                .text(),
            best_of(
                cases, measure, [](const Case& c) -> auto& { return c.by_arrival; })
                .text(),
            names,
            all.percent_of_job.text(),
            all.percent_of_sum.text(),
            worst_class + worst.text(),
            split.text()};
}

// As parallel as the machine is; the result does not depend on it.
Cases all_cases(const std::vector<sim::Imported>& workloads, const Market& market, bool controls) {
    constexpr int64_t asked = 6;
    std::vector<Cases> parts(workloads.size());
    std::atomic<size_t> next{0};
    const sim::MarketRunOptions options = market.options();
    const auto work = [&] {
        for (size_t w = next++; w < workloads.size(); w = next++) {
            if (workloads[w].jobs.empty()) continue;
            parts[w] = cases_of(workloads[w], options, run, asked, controls, w + 1);
            for (Case& c : parts[w]) c.workload = w;
        }
    };
    std::vector<std::thread> threads;
    for (unsigned n = 1; n < std::thread::hardware_concurrency(); ++n) threads.emplace_back(work);
    work();
    for (std::thread& t : threads) t.join();
    Cases cases;
    for (Cases& part : parts) cases.insert(cases.end(), part.begin(), part.end());
    return cases;
}

std::vector<sim::Imported> workloads_of(const std::vector<Trace>& traces, const Kind& kind,
                                        int64_t jobs, int64_t seeds) {
    std::vector<sim::Imported> workloads;
    for (int64_t seed = 1; seed <= seeds; ++seed)
        for (const Trace& trace : traces)
            workloads.push_back(workload_of(trace, kind, jobs, static_cast<uint64_t>(seed)));
    return workloads;
}

constexpr Market plain[] = {
    {"greedy_migration", 0, 0}, {"welfare", 0, 0}, {"proportional_share", 0, 0}};
constexpr Market aware[] = {{"greedy_migration", 600, 0},     {"welfare", 600, 0},
                            {"greedy_migration", 0, 60},      {"welfare", 0, 60},
                            {"greedy_migration", 0, 600},     {"welfare", 0, 600},
                            {"greedy_migration", 0, 0, 600},  {"welfare", 0, 0, 600},
                            {"greedy_migration", 0, 0, 3600}, {"welfare", 0, 0, 3600}};

Table regret_table(const std::string& name) {
    return {
        name,
        {"algorithm", "horizon s", "min_stay s", "price over s", "jobs", "best lie in hindsight",
         "best of others' lies", "best of others' arrivals a second later", "lie chosen beforehand",
         "gains", "of the sum", "worst class gains", "best split gains"},
        {}};
}

// Means of every lie, by algorithm and measure; for the impatient, of whom some pay next to nothing
// for the time that they win, in % of what all pay.
Table each_lie(const Kind& kind, const std::vector<Cases>& by_market) {
    Table table{"What each lie gains on average, % of what the truthful job pays: " + kind.text(),
                {"lie"},
                {}};
    for (const Market& m : plain)
        for (const char* measure : measures)
            table.columns.push_back(std::string(m.algorithm) + ", " + measure);
    for (size_t lie = 0; lie < std::size(lies); ++lie) {
        std::vector<std::string> cells{lies[lie].name()};
        for (const Cases& cases : by_market) {
            for (const size_t m : {0U, 1U}) cells.push_back(by_lie(cases, m)[lie].text());
            Mean of_sum;
            for (const Case& c : cases)
                for (const LieTold& told : c.by_lies)
                    if (told.lie == lie) of_sum.add(c.workload, 100 * told.gains[2], c.paid);
            cells.push_back(of_sum.text());
        }
        if (!cells[1].empty()) table.add(std::move(cells));
    }
    return table;
}

}  // namespace

std::vector<Table> lies_over_time(const Settings& settings) {
    const std::vector<Trace> traces = read_traces(settings.traces);
    const int64_t seeds = std::max<int64_t>(2, settings.seeds / 5);
    std::vector<Table> tables;
    for (const Kind kind : {Kind{false, false}, Kind{false, true}, Kind{true, false}}) {
        const auto workloads = workloads_of(traces, kind, settings.jobs, seeds);
        std::vector<Table> by_measure;
        for (const size_t m : {0U, 1U})
            by_measure.push_back(
                regret_table("Regret over time, % of what the truthful job pays, " +
                             std::string(measures[m]) + ": " + kind.text()));
        std::vector<Cases> of_plain;
        const auto add = [&](const Market& market, bool controls) {
            Cases cases = all_cases(workloads, market, controls);
            for (size_t m = 0; m < by_measure.size(); ++m) by_measure[m].add(row(market, cases, m));
            return cases;
        };
        for (const Market& market : plain) of_plain.push_back(add(market, true));
        if (!kind.equal_reserves)
            for (const Market& market : aware) add(market, false);
        for (Table& table : by_measure) tables.push_back(std::move(table));
        tables.push_back(each_lie(kind, of_plain));
    }
    return tables;
}

}  // namespace souk::study
