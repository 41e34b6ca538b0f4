// SPDX-License-Identifier: GPL-2.0-or-later
// Welfare where sizes differ, beside the optimum: by exhaustion on small markets, and on large ones
// beside the bound of the linear relaxation. In that a job may be split over machines and over
// CPUs, and memory does not count. Then only how many CPUs of each class a job has matters, and a
// job of k CPUs is k jobs of one CPU: the assignment market, of which `welfare` finds the optimum
// (the tests compare that with exhaustion).
#include <algorithm>
#include <functional>

#include "tests/study/one_decision.hpp"
#include "tests/study/study.hpp"

namespace souk::study {
namespace {

Decision draw(Rng& rng, int64_t jobs, int64_t machines, int32_t cpus, int32_t cpus_job,
              int64_t memory_job) {
    Decision d;
    for (int64_t n = 0; n < machines; ++n) {
        market::ProviderSpec p;
        p.speed = static_cast<int32_t>(60 + 10 * rng.between(0, 4));
        p.reserve = Money::units(rng.between(1, 20));
        p.cpus = cpus;
        p.memory_mb = 1000 * cpus;
        d.providers.push_back(p);
    }
    for (int64_t n = 0; n < jobs; ++n) {
        market::JobDemand j;
        j.value = Money::units(rng.between(10, 60));
        j.cpus = static_cast<int32_t>(rng.between(1, cpus_job));
        j.memory_mb = memory_job > 0 ? rng.between(0, memory_job) : 0;
        j.user = static_cast<uint32_t>(n);
        d.jobs.push_back(j);
    }
    return d;
}

// Every place of every job.
class Exhaustion {
  public:
    explicit Exhaustion(const Decision& d) : d_(d), top_(d.top()) {
        for (const auto& p : d.providers)
            cpus_.push_back(p.cpus), memory_mb_.push_back(p.memory_mb);
    }
    double best(size_t j = 0) {
        if (j == d_.jobs.size()) return 0;
        const market::JobDemand& job = d_.jobs[j];
        double most = best(j + 1);
        for (size_t p = 0; p < cpus_.size(); ++p) {
            const auto& machine = d_.providers[p];
            const double gain = (static_cast<double>(job.value.micro) * machine.speed / top_ -
                                 static_cast<double>(machine.reserve.micro)) *
                                job.cpus / 1e6;
            if (gain <= 0 || cpus_[p] < job.cpus || memory_mb_[p] < job.memory_mb) continue;
            cpus_[p] -= job.cpus, memory_mb_[p] -= job.memory_mb;
            most = std::max(most, gain + best(j + 1));
            cpus_[p] += job.cpus, memory_mb_[p] += job.memory_mb;
        }
        return most;
    }

  private:
    const Decision& d_;
    const int32_t top_;
    std::vector<int32_t> cpus_;
    std::vector<int64_t> memory_mb_;
};

double relaxed(const Decision& d) {
    Decision split;
    split.providers = d.providers;
    for (const market::JobDemand& j : d.jobs)
        for (int32_t n = 0; n < j.cpus; ++n) {
            split.jobs.push_back(j);
            split.jobs.back().cpus = 1;
            split.jobs.back().memory_mb = 0;
        }
    return welfare_of(split, decide(split, "welfare"));
}

void compare(Table& table, const char* name, int64_t markets,
             const std::function<Decision(Rng&)>& make,
             const std::function<double(const Decision&)>& most) {
    for (const char* algorithm : {"greedy_migration", "welfare"}) {
        Rng rng(3);
        Sample ratios;
        for (int64_t n = 0; n < markets; ++n) {
            const Decision d = make(rng);
            const double best = most(d);
            if (best > 0) ratios.add(welfare_of(d, decide(d, algorithm)) / best);
        }
        table.add({name, algorithm, std::to_string(ratios.values.size()),
                   number(ratios.quantile(0.5), 4), number(ratios.quantile(0.05), 4),
                   number(ratios.quantile(0), 4)});
    }
}

}  // namespace

std::vector<Table> welfare_beside_the_optimum(const Settings& settings) {
    Table table{"Welfare of one decision over the optimum, mixed sizes",
                {"markets", "algorithm", "number", "median", "1 of 20 is below", "worst"},
                {}};
    const auto exhaustion = [](const Decision& d) { return Exhaustion(d).best(); };
    compare(
        table, "7 jobs of 1 to 3 CPUs, 3 machines of 4 (optimum)", 25 * settings.seeds,
        [](Rng& rng) { return draw(rng, 7, 3, 4, 3, 0); }, exhaustion);
    compare(
        table, "the same, memory binds (optimum)", 25 * settings.seeds,
        [](Rng& rng) { return draw(rng, 7, 3, 4, 3, 3000); }, exhaustion);
    compare(
        table, "300 jobs of 1 to 4 CPUs, 40 machines of 16 (LP bound)", 2 * settings.seeds,
        [](Rng& rng) { return draw(rng, 300, 40, 16, 4, 0); }, relaxed);
    compare(
        table, "300 jobs of 1 to 16 CPUs, 100 machines of 16 (LP bound)", 2 * settings.seeds,
        [](Rng& rng) { return draw(rng, 300, 100, 16, 16, 0); }, relaxed);
    compare(
        table, "3,000 jobs of 1 to 8 CPUs, 500 machines of 16 (LP bound)",
        std::max<int64_t>(3, settings.seeds / 4),
        [](Rng& rng) { return draw(rng, 3000, 500, 16, 8, 0); }, relaxed);
    return {table};
}

}  // namespace souk::study
