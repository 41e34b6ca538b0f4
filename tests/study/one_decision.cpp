// SPDX-License-Identifier: GPL-2.0-or-later
// Lies in one decision, as in the table that the market's prices are judged by.
#include "tests/study/one_decision.hpp"

#include <algorithm>
#include <cstdlib>

#include "tests/study/study.hpp"

namespace souk::study {

using market::JobDemand;
using market::JobKey;
using market::ProviderKey;

int32_t Decision::top() const {
    int32_t top = 1;
    for (const auto& p : providers) top = std::max(top, p.speed);
    return top;
}

Outcome decide(const Decision& d, const char* algorithm) {
    market::Solver solver;
    market::SolverOptions options;
    options.algorithm = algorithm;
    if (!solver.set_options(options)) std::abort();
    for (size_t i = 0; i < d.providers.size(); ++i)
        if (!solver.add_provider(ProviderKey{i + 1}, d.providers[i])) std::abort();
    for (size_t i = 0; i < d.jobs.size(); ++i)
        if (!solver.add_job(JobKey{i + 1}, d.jobs[i])) std::abort();
    solver.solve(Nanos{0});
    Outcome o{std::vector<int32_t>(d.jobs.size(), -1), std::vector<Money>(d.jobs.size())};
    for (const market::Payment& p : solver.payments()) {
        o.place[p.job.n - 1] = static_cast<int32_t>(p.provider.n - 1);
        o.price[p.job.n - 1] = p.price;
    }
    return o;
}

namespace {
double at(const Decision& d, const Outcome& o, size_t j, Money value, Money less) {
    const auto& p = d.providers[static_cast<size_t>(o.place[j])];
    const double worth = static_cast<double>(value.micro) * p.speed / d.top();
    return (worth - static_cast<double>(less.micro)) * d.jobs[j].cpus / 1e6;
}
}  // namespace

double gain_of(const Decision& d, const Outcome& o, const std::vector<Money>& values,
               uint32_t user) {
    double sum = 0;
    for (size_t j = 0; j < d.jobs.size(); ++j)
        if (d.jobs[j].user == user && o.place[j] >= 0) sum += at(d, o, j, values[j], o.price[j]);
    return sum;
}

double welfare_of(const Decision& d, const Outcome& o) {
    double sum = 0;
    for (size_t j = 0; j < d.jobs.size(); ++j)
        if (o.place[j] >= 0)
            sum +=
                at(d, o, j, d.jobs[j].value, d.providers[static_cast<size_t>(o.place[j])].reserve);
    return sum;
}

namespace {
struct Shape {
    const char* name;
    bool speeds, reserves;
    int64_t users;  // 0: one job each
    int64_t cpus;   // of a job, at most
};
constexpr Shape shapes[] = {
    {"equal speeds, equal reserves", false, false, 0, 1},
    {"speeds differ, equal reserves above 0", true, false, 0, 1},
    {"equal speeds, reserves differ", false, true, 0, 1},
    {"both differ", true, true, 0, 1},
    {"equal speeds, reserves differ; 3 users", false, true, 3, 1},
    {"both differ; 3 users", true, true, 3, 1},
    {"equal speeds, reserves differ; 1 to 3 CPUs", false, true, 0, 3},
    {"both differ; 1 to 3 CPUs", true, true, 0, 3},
    {"both differ; 1 to 3 CPUs, 3 users", true, true, 3, 3},
};

Decision draw(Rng& rng, const Shape& s) {
    Decision d;
    for (int64_t n = rng.between(1, 6); n > 0; --n) {
        market::ProviderSpec p;
        p.speed = s.speeds ? static_cast<int32_t>(20 * rng.between(1, 5)) : 100;
        p.reserve = Money::units(s.reserves ? rng.between(0, 24) : 7);
        p.cpus = static_cast<int32_t>(rng.between(1, 2 * s.cpus));
        p.memory_mb = 1000;
        d.providers.push_back(p);
    }
    for (int64_t n = rng.between(1, 12); n > 0; --n) {
        JobDemand j;
        j.value = Money::units(rng.between(0, 40));
        j.cpus = static_cast<int32_t>(rng.between(1, s.cpus));
        j.user = static_cast<uint32_t>(s.users > 0 ? rng.below(static_cast<uint64_t>(s.users))
                                                   : d.jobs.size());
        d.jobs.push_back(j);
    }
    return d;
}

// The most that a user gains by a false bid of one job or of all, of those tried.
double best_lie(const Decision& truth, const Outcome& honest, const char* algorithm, Rng& rng) {
    std::vector<Money> values, bids{{}, Money::units(60)};
    for (const JobDemand& j : truth.jobs) values.push_back(j.value), bids.push_back(j.value);
    for (const auto& p : truth.providers) bids.push_back(p.reserve);
    const auto near = [&](Money bid) {
        return std::max(Money{}, bid + Money{500'000 * rng.between(-1, 1)});
    };
    double best = 0;
    const auto attempt = [&](const Decision& lie, uint32_t user) {
        best = std::max(best, gain_of(truth, decide(lie, algorithm), values, user) -
                                  gain_of(truth, honest, values, user));
    };
    for (size_t j = 0; j < truth.jobs.size(); ++j)
        for (const Money bid : bids) {
            Decision lie = truth;
            lie.jobs[j].value = near(bid);
            attempt(lie, truth.jobs[j].user);
        }
    for (int n = 0; n < 20; ++n) {
        Decision lie = truth;
        const uint32_t user = truth.jobs[rng.below(truth.jobs.size())].user;
        for (JobDemand& j : lie.jobs)
            if (j.user == user) j.value = near(bids[rng.below(bids.size())]);
        attempt(lie, user);
    }
    return best;
}
}  // namespace

std::vector<Table> lies_in_one_decision(const Settings& settings) {
    Table table{"The best lie in one decision, of values up to 40",
                {"markets", "algorithm", "markets with a lie that gains, %", "best lie gains",
                 "mean gain of the best"},
                {}};
    for (const Shape& shape : shapes)
        for (const char* algorithm : {"greedy_migration", "welfare"}) {
            Rng rng(4);
            Sample gains, lying;
            for (int64_t n = 0; n < 50 * settings.seeds; ++n) {
                const Decision d = draw(rng, shape);
                const double gain = best_lie(d, decide(d, algorithm), algorithm, rng);
                // prices are rounded down to a millionth
                gains.add(gain > 1e-4 ? gain : 0);
                lying.add(gain > 1e-4 ? 100 : 0);
            }
            table.add({shape.name, algorithm, lying.text(1), number(gains.most(), 2),
                       number(gains.mean(), 3)});
        }
    return {table};
}

}  // namespace souk::study
