// SPDX-License-Identifier: GPL-2.0-or-later
// Lies over time: what a job of a recorded workload gains by a false bid, by coming late or early,
// by a bid that changes once it runs, or by a split of its CPUs into jobs.
//
// What a job gains, in three measures:
// - by its end: what is done until the second at which it ends when it says the truth is worth
//   value x CPU-hours x speed / fastest speed; later work is worth nothing. Less what it pays.
// - patient: the same, but with half again as much time.
// - impatient: all work is worth the same, and each hour in the system costs value x CPUs (the
//   weighted completion time of Amar, Mu'alem and Stoesser 2008). Less what it pays.
// The regret is what the best of the lies tried gains more, as a part of what the truthful job
// pays.
#include "tests/study/study.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace souk::study {
namespace {

constexpr size_t classes = 4;

struct Lie {
    const char* kind;
    double bid = 1;
    int64_t later_s = 0;  // below 0: earlier, with a placeholder that runs as long
    double rebid = 0;     // once it runs; 0: never
    bool split = false;   // a job for each CPU
};
constexpr Lie lies[] = {
    {"bid", 0.2},
    {"bid", 0.5},
    {"bid", 0.8},
    {"bid", 0.9},
    {"bid", 1.1},
    {"bid", 1.25},
    {"bid", 2},
    {"bid", 5},
    {"late", 1, 60},
    {"late", 1, 600},
    {"late", 1, 3600},
    {"early", 1, -300},
    {"bid later", 1, 0, 5},
    {"bid later", 1, 0, 2},
    {"bid later", 1, 0, 0.5},
    {"bid later", 2, 0, 1},
    {"split", 1, 0, 0, true},
};

struct Market {
    const char* algorithm;
    int64_t horizon_s, min_stay_s;
};

Money times(Money value, double factor) {
    return Money{
        std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(value.micro) * factor))};
}

struct Measure {
    const char* name;
    double stay;  // until so many times the truthful time in the system; 0: impatient
};
constexpr Measure measures[] = {{"by its end", 1}, {"patient", 1.5}, {"impatient", 0}};

class Search {
  public:
    Search(const sim::Imported& w, const Market& market, const Measure& measure)
        : w_(w), measure_(measure) {
        for (const sim::SimProvider& p : w.providers) top_ = std::max(top_, p.speed);
        options_.solver.algorithm = market.algorithm;
        options_.solver.quantum = Nanos::from_s(600);  // shorter turns are all freezes and thaws
        options_.solver.horizon = Nanos::from_s(market.horizon_s);
        options_.solver.min_stay = Nanos::from_s(market.min_stay_s);
        truth_ = run(w, options_);
    }

    // The regret of job j; and what the best lie of each kind gains.
    std::optional<double> regret(uint32_t j, std::map<std::string, double>& by_kind,
                                 std::map<size_t, double>& by_lie) const {
        const double paid = static_cast<double>(truth_.jobs[j].paid.micro_s) / 3600;
        if (truth_.jobs[j].end_s < 0 || paid <= 0) return std::nullopt;
        const double honest = gain_of(j, truth_, {j}, 0);
        double best = 0;
        for (const Lie& lie : lies) {
            if (lie.split && w_.jobs[j].cpus == 1) continue;
            const double gain = (tell(j, lie) - honest) / paid;
            best = std::max(best, gain);
            by_lie[static_cast<size_t>(&lie - lies)] = gain;
            by_kind[lie.kind] = std::max(by_kind[lie.kind], gain);
        }
        return best;
    }

  private:
    double tell(uint32_t j, const Lie& lie) const {
        sim::Imported w = w_;
        sim::MarketRunOptions options = options_;
        sim::SimJob& job = w.jobs[j];
        job.value = times(job.value, lie.bid);
        if (lie.later_s < 0) job.run_s -= std::max(lie.later_s, -job.start_s);
        job.start_s = std::max<int64_t>(0, job.start_s + lie.later_s);
        if (lie.rebid > 0) options.rebid = sim::Rebid{j, times(w_.jobs[j].value, lie.rebid)};
        options.until = {j};
        if (lie.split)
            for (int32_t n = std::exchange(job.cpus, 1); n > 1; --n) {
                options.until.push_back(static_cast<uint32_t>(w.jobs.size()));
                w.jobs.push_back(w.jobs[j]);
                w.jobs.back().id = static_cast<int64_t>(w.jobs.size());
            }
        const int64_t stay = truth_.jobs[j].end_s - w_.jobs[j].start_s;
        if (measure_.stay > 0)
            options.stop_s =
                w_.jobs[j].start_s +
                std::max<int64_t>(1, std::llround(measure_.stay * static_cast<double>(stay)));
        return gain_of(j, run(w, options), options.until, w.jobs[j].run_s - w_.jobs[j].run_s);
    }
    // `extra_s`: the placeholder's part of the work, which is worth nothing.
    double gain_of(uint32_t j, const sim::RunOutcome& out, const std::vector<uint32_t>& jobs,
                   int64_t extra_s) const {
        const sim::SimJob& job = w_.jobs[j];
        double paid = 0, done = 0;
        int64_t end_s = 0;
        for (const uint32_t i : jobs) {
            end_s = std::max(end_s, out.jobs[i].end_s);
            paid += static_cast<double>(out.jobs[i].paid.micro_s) / 3600;
            done += static_cast<double>(std::max<int64_t>(0, out.jobs[i].done - 100 * extra_s));
        }
        done /= static_cast<double>(jobs.size()) * top_;
        const double hours =
            measure_.stay > 0 ? done / 3600 : static_cast<double>(job.start_s - end_s) / 3600;
        return static_cast<double>(job.value.micro) * job.cpus * hours - paid;
    }

    const sim::Imported& w_;
    const Measure& measure_;
    int32_t top_ = 1;
    sim::MarketRunOptions options_;
    sim::RunOutcome truth_;
};

struct Regrets {
    Sample all;
    std::array<Sample, classes> by_value;
    std::map<std::string, Sample> by_kind;
    std::map<size_t, Sample> by_lie;

    // The one lie that gains most on average: what who does not know the future can plan with.
    std::string best_rule() const {
        const auto best = std::max_element(
            by_lie.begin(), by_lie.end(),
            [](const auto& a, const auto& b) { return a.second.mean() < b.second.mean(); });
        if (best == by_lie.end()) return "";
        const Lie& lie = lies[best->first];
        std::string name = lie.kind;
        if (lie.bid != 1) name += " x " + number(lie.bid, 2);
        if (lie.later_s != 0) name += " " + std::to_string(lie.later_s) + " s";
        if (lie.rebid > 0) name += " x " + number(lie.rebid, 2);
        return name + ": " + best->second.text(2);
    }
    std::vector<std::string> row(std::vector<std::string> cells) const {
        const auto percent = [](const Sample& s) { return s.text(2); };
        cells.push_back(std::to_string(all.values.size()));
        cells.push_back(percent(all));
        cells.push_back(best_rule());
        for (const Sample& s : by_value) cells.push_back(percent(s));
        cells.push_back(number(all.quantile(0.5), 2));
        cells.push_back(number(all.quantile(0.9), 2));
        for (const char* kind : {"bid", "late", "early", "bid later", "split"}) {
            const auto found = by_kind.find(kind);
            cells.push_back(found == by_kind.end() ? "" : number(found->second.mean(), 2));
        }
        return cells;
    }
};

Regrets regrets(const std::vector<Trace>& traces, const Kind& kind, const Market& market,
                const Measure& measure, const Settings& settings, int64_t seeds) {
    constexpr int64_t asked = 6;
    Regrets r;
    for (const Trace& trace : traces)
        for (int64_t seed = 1; seed <= seeds; ++seed) {
            const sim::Imported w =
                workload_of(trace, kind, settings.jobs, static_cast<uint64_t>(seed));
            if (w.jobs.empty()) continue;
            const Search search(w, market, measure);
            Rng rng(static_cast<uint64_t>(seed));
            for (int64_t n = 0; n < asked; ++n) {
                const auto j = static_cast<uint32_t>(rng.below(w.jobs.size()));
                std::map<std::string, double> by_kind;
                std::map<size_t, double> by_lie;
                const auto regret = search.regret(j, by_kind, by_lie);
                if (!regret) continue;
                r.all.add(100 * *regret);
                const auto value = w.jobs[j].value.micro / 1'000'000;
                r.by_value[static_cast<size_t>(std::clamp<int64_t>((value - 10) * 4 / 51, 0, 3))]
                    .add(100 * *regret);
                for (const auto& [lie, gain] : by_lie) r.by_lie[lie].add(100 * gain);
                for (const auto& [what, gain] : by_kind) r.by_kind[what].add(100 * gain);
            }
        }
    return r;
}

// The larger a market, the less one job changes in it.
Table by_size(const std::vector<Trace>& traces, const Settings& settings) {
    Table table{"Regret over time by the size of the market, by its end: one CPU, reserves drawn",
                {"algorithm", "machines", "jobs", "mean", "best single rule", "values 10-22",
                 "23-35", "36-47", "48-60", "median", "9 of 10 below", "by bid", "late", "early",
                 "bid later", "split"},
                {}};
    for (const int64_t machines : {4, 16, 32})
        for (const char* algorithm : {"greedy_migration", "welfare"}) {
            Settings larger = settings;
            larger.jobs = 10 * machines;
            const Regrets r = regrets(traces, {false, false, machines}, {algorithm, 0, 0},
                                      measures[0], larger, 1);
            table.add(r.row({algorithm, std::to_string(machines)}));
        }
    return table;
}

}  // namespace

std::vector<Table> lies_over_time(const Settings& settings) {
    const std::vector<Trace> traces = read_traces(settings.traces);
    constexpr Market markets[] = {
        {"greedy_migration", 0, 0},   {"welfare", 0, 0},
        {"proportional_share", 0, 0}, {"greedy_migration", 600, 0},
        {"welfare", 600, 0},          {"greedy_migration", 0, 60},
        {"welfare", 0, 60},           {"greedy_migration", 0, 600},
        {"welfare", 0, 600},
    };
    std::vector<Table> tables;
    for (const bool wide : {false, true})
        for (const Measure& measure : measures) {
            const Kind kind{wide, false};
            Table table{"Regret over time, % of what the truthful job pays, " +
                            std::string(measure.name) + ": " + kind.text(),
                        {"algorithm", "horizon s", "min_stay s", "jobs", "mean", "best single rule",
                         "values 10-22", "23-35", "36-47", "48-60", "median", "9 of 10 below",
                         "by bid", "late", "early", "bid later", "split"},
                        {}};
            for (const Market& m : markets) {
                const Regrets r = regrets(traces, kind, m, measure, settings,
                                          std::max<int64_t>(1, settings.seeds / 10));
                table.add(r.row(
                    {m.algorithm, std::to_string(m.horizon_s), std::to_string(m.min_stay_s)}));
            }
            tables.push_back(std::move(table));
        }
    tables.push_back(by_size(traces, settings));
    return tables;
}

}  // namespace souk::study
