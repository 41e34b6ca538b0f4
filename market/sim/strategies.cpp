// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/sim/strategies.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "kernel/base/rng.hpp"

namespace souk::sim {

using market::Strategy;

Result<Mix> parse_mix(const std::string& name) {
    using enum Strategy;
    if (name == "all") return Mix{name, {truthful, pace, deadline, patient}};
    Mix mix{name, {}};
    for (size_t at = 0; at <= name.size();) {
        const size_t end = std::min(name.find('+', at), name.size());
        const std::string one = name.substr(at, end - at);
        const auto strategy = one.empty() ? std::nullopt : market::strategy_named(one);
        if (!strategy) return fail("'" + one + "' is none of truthful, pace, deadline and patient");
        mix.of.push_back(*strategy);
        at = end + 1;
    }
    return mix;
}

std::vector<JobTerms> terms_of(std::span<const SimJob> jobs, const Mix& mix, double slack,
                               uint64_t seed) {
    std::vector<JobTerms> all;
    all.reserve(jobs.size());
    Rng rng(seed);
    for (const SimJob& job : jobs) {
        const double time = 1.2 + rng.unit() * (slack - 1.2), part = 0.3 + rng.unit() * 0.7,
                     pick = rng.unit();
        const Strategy strategy =
            mix.of[static_cast<size_t>(pick * static_cast<double>(mix.of.size()))];
        JobTerms& terms = all.emplace_back();
        terms.max_price = job.value;
        terms.cpus = job.cpus;
        terms.strategy = to_string(strategy);
        terms.pace = strategy == Strategy::pace;
        terms.runtime = Nanos::from_s(job.run_s);
        terms.finish =
            Nanos::from_s(std::llround(std::ceil(static_cast<double>(job.run_s) * time)));
        terms.budget.micro =
            std::max<int64_t>(1, std::llround(static_cast<double>(job.value.micro) * job.cpus *
                                              static_cast<double>(job.run_s) / 3600 * part));
    }
    return all;
}

std::vector<ByStrategy> by_strategy(std::span<const SimJob> jobs, std::span<const JobTerms> terms,
                                    const RunOutcome& outcome, int64_t alpha_s) {
    struct Sums {
        double paid = 0, work = 0, slowdown = 0;
        uint32_t in_time = 0;
    };
    std::map<Strategy, std::pair<ByStrategy, Sums>> all;
    for (size_t i = 0; i < jobs.size(); ++i) {
        const SimJob& job = jobs[i];
        const JobOutcome& out = outcome.jobs[i];
        auto& [row, sums] = all[market::strategy_of(terms[i])];
        ++row.jobs;
        sums.paid += static_cast<double>(out.paid.micro_s) / 3600e6;
        sums.work += static_cast<double>(out.done) / 360'000 * job.cpus;
        if (out.end_s < 0) {
            ++row.unfinished;
            continue;
        }
        const auto stay = static_cast<double>(out.end_s - job.start_s),
                   least = static_cast<double>(std::max(job.run_s, alpha_s));
        sums.slowdown += std::max(stay, least) / least;
        sums.in_time += Nanos::from_s(out.end_s - job.start_s) <= terms[i].finish;
    }
    std::vector<ByStrategy> rows;
    for (auto& [strategy, found] : all) {
        auto& [row, sums] = found;
        row.strategy = strategy;
        row.price = sums.work > 0 ? sums.paid / sums.work : 0;
        const uint32_t finished = row.jobs - row.unfinished;
        row.bounded_slowdown = finished > 0 ? sums.slowdown / finished : 0;
        row.in_time = static_cast<double>(sums.in_time) / row.jobs;
        rows.push_back(row);
    }
    return rows;
}

}  // namespace souk::sim
