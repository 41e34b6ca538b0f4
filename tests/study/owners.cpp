// SPDX-License-Identifier: GPL-2.0-or-later
// This study looks for the gain of an owner who asks more than its cost and knows all bids: the
// best of some factors, as a part of what it earns above its cost when it asks just that. There are
// three classes of machines (speeds 100, 80 and 60), so many owners in each, with costs that differ
// by owner, and twelve jobs for each ten CPUs.
#include <algorithm>

#include "tests/study/one_decision.hpp"
#include "tests/study/study.hpp"

namespace souk::study {
namespace {

constexpr double factors[] = {1.02, 1.05, 1.1, 1.2, 1.35, 1.5, 2, 3, 5};

Decision draw(Rng& rng, int64_t owners, double load) {
    Decision d;
    for (const int32_t speed : {100, 80, 60})
        for (int64_t n = 0; n < owners; ++n) {
            market::ProviderSpec p;
            p.speed = speed;
            p.reserve = Money{rng.between(1'000'000, 10'000'000)};
            p.cpus = 2;
            p.memory_mb = 1000;
            d.providers.push_back(p);
        }
    const auto jobs = static_cast<int64_t>(load * 6 * static_cast<double>(owners));
    for (int64_t n = 0; n < std::max<int64_t>(1, jobs); ++n) {
        market::JobDemand j;
        j.value = Money{rng.between(10'000'000, 60'000'000)};
        j.user = static_cast<uint32_t>(n);
        d.jobs.push_back(j);
    }
    return d;
}

double profit(const Decision& d, const char* algorithm, size_t owner, Money cost) {
    const Outcome o = decide(d, algorithm);
    double sum = 0;
    for (size_t j = 0; j < d.jobs.size(); ++j)
        if (o.place[j] == static_cast<int32_t>(owner))
            sum += static_cast<double>((o.price[j] - cost).micro) / 1e6;
    return sum;
}

}  // namespace

std::vector<Table> owners_who_ask_more(const Settings& settings) {
    std::vector<Table> tables;
    for (const double load : {0.8, 1.2}) {
        Table table{
            "What owners gain by asking more than their cost, % of what they earn above it "
            "when they ask that; jobs for " +
                number(100 * load, 0) + " % of the CPUs",
            {"owners per class", "greedy_migration", "welfare"},
            {}};
        for (const int64_t owners : {1, 2, 4, 8, 16, 32, 64}) {
            std::vector<std::string> row{std::to_string(owners)};
            for (const char* algorithm : {"greedy_migration", "welfare"}) {
                Rng rng(5);
                Sample honest, gains;
                for (int64_t n = 0; n < 8 * settings.seeds; ++n) {
                    const Decision truth = draw(rng, owners, load);
                    const size_t owner = rng.below(truth.providers.size());
                    const Money cost = truth.providers[owner].reserve;
                    const double earns = profit(truth, algorithm, owner, cost);
                    double best = 0;
                    for (const double factor : factors) {
                        Decision lie = truth;
                        lie.providers[owner].reserve =
                            Money{static_cast<int64_t>(static_cast<double>(cost.micro) * factor)};
                        best = std::max(best, profit(lie, algorithm, owner, cost) - earns);
                    }
                    honest.add(earns);
                    gains.add(best);
                }
                for (double& gain : gains.values) gain *= 100 / honest.mean();
                row.push_back(gains.text(2));
            }
            table.add(std::move(row));
        }
        tables.push_back(std::move(table));
    }
    return tables;
}

}  // namespace souk::study
