// SPDX-License-Identifier: GPL-2.0-or-later
// greedy_migration beside welfare on every trace: the same jobs, machines and seeds under both.
#include "tests/study/study.hpp"

#include <algorithm>
#include <array>

namespace souk::study {
namespace {

constexpr std::array algorithms{"greedy_migration", "welfare"};
constexpr size_t classes = 4;

struct Figures {
    double welfare, users, owners, moves, envy;
    std::array<double, classes> slowdown;  // mean bounded slowdown by quarter of values
};

Figures figures_of(const sim::Imported& w, const char* algorithm) {
    sim::MarketRunOptions options;
    options.solver.algorithm = algorithm;
    options.envy = true;
    const sim::RunOutcome out = run(w, options);
    Figures f{};
    const auto units = [](Money m) { return static_cast<double>(m.micro) / 1e6; };
    f.users = units(out.totals.consumers.money());
    f.owners = units(out.totals.providers.money());
    f.welfare = f.users + f.owners;
    f.envy = units(out.totals.envy.money());
    std::array<Sample, classes> slowdown;
    for (size_t j = 0; j < w.jobs.size(); ++j) {
        f.moves += out.jobs[j].moves + out.jobs[j].freezes;
        if (out.jobs[j].end_s < 0) continue;
        const auto run_s = static_cast<double>(std::max<int64_t>(w.jobs[j].run_s, 10)),
                   stay = static_cast<double>(out.jobs[j].end_s - w.jobs[j].start_s);
        slowdown[quarter_of(w.jobs[j].value)].add(std::max(stay, run_s) / run_s);
    }
    f.moves /= static_cast<double>(w.jobs.size());
    for (size_t c = 0; c < classes; ++c) f.slowdown[c] = slowdown[c].mean();
    return f;
}

// The figures of both algorithms over all seeds, and for each seed how much more welfare the
// algorithm of that name reaches than greedy.
struct Beside {
    std::array<Sample, 2> users, owners, moves, envy;
    std::array<std::array<Sample, classes>, 2> slowdown;
    Sample welfare_more;  // in percent

    void add(const std::array<Figures, 2>& f) {
        const double whole = f[0].welfare / 100;
        if (whole <= 0) return;
        welfare_more.add((f[1].welfare - f[0].welfare) / whole);
        for (size_t a = 0; a < 2; ++a) {
            users[a].add(f[a].users / whole);
            owners[a].add(f[a].owners / whole);
            envy[a].add(f[a].envy / whole);
            moves[a].add(f[a].moves);
            for (size_t c = 0; c < classes; ++c) slowdown[a][c].add(f[a].slowdown[c]);
        }
    }
    std::vector<std::string> row(std::string name, size_t a) const {
        std::vector<std::string> cells{std::move(name),
                                       a == 0 ? "greedy" : "welfare",
                                       a == 0 ? "100" : "100 + " + welfare_more.text(2),
                                       users[a].text(1),
                                       owners[a].text(1),
                                       moves[a].text(2),
                                       envy[a].text(2)};
        for (const Sample& s : slowdown[a]) cells.push_back(number(s.mean(), 2));
        return cells;
    }
};

}  // namespace

std::vector<Table> side_by_side(const Settings& settings) {
    const std::vector<Trace> traces = read_traces(settings.traces);
    std::vector<Table> tables;
    for (const Kind kind :
         {Kind{false, false}, Kind{false, true}, Kind{true, false}, Kind{true, true}}) {
        Table table{"Side by side: " + kind.text(),
                    {"trace", "algorithm", "welfare, % of greedy's", "users' surplus", "owners'",
                     "moves and freezes a job", "envy", "slowdown, values 10-22", "23-35", "36-47",
                     "48-60"},
                    {}};
        Beside all;
        for (const Trace& trace : traces) {
            Beside one;
            for (int64_t seed = 1; seed <= settings.seeds; ++seed) {
                const sim::Imported w =
                    workload_of(trace, kind, settings.jobs, static_cast<uint64_t>(seed));
                if (w.jobs.empty()) continue;
                std::array<Figures, 2> f{};
                for (size_t a = 0; a < 2; ++a) f[a] = figures_of(w, algorithms[a]);
                one.add(f);
                all.add(f);
            }
            if (one.welfare_more.values.empty()) continue;
            for (size_t a = 0; a < 2; ++a) table.add(one.row(trace.name, a));
        }
        for (size_t a = 0; a < 2; ++a) table.add(all.row("all", a));
        tables.push_back(std::move(table));
    }
    return tables;
}

}  // namespace souk::study
