// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/sim/coallocation_experiments.hpp"

#include <algorithm>
#include <cmath>

#include "kernel/base/rng.hpp"

namespace souk::sim::coallocation {
namespace {

constexpr Experiment published[] = {
    {1, 4, 8, 0, "fcfs", {377.2, 177.2}, {79.4, 29.8}, {32.9, 17.8}},
    {2, 2, 8, 0, "fcfs", {581.3, 295.2}, {102.1, 12.5}, {25.4, 3.5}},
    {3, 2, 4, 0, "fcfs", {267.2, 108.2}, {76.8, 17.0}, {26.9, 3.2}},
    {4, 2, 8, 10, "fcfs", {1135.2, 611.1}, {87.8, 10.0}, {21.9, 3.4}},
    {5, 2, 8, 5, "fpfs", {634.7, 335.3}, {92.4, 15.6}, {25.3, 6.5}},
};
constexpr size_t jobs_of_each = 40;
constexpr int64_t slot_cpus_max = 8;
constexpr int64_t horizon_ms = 4 * 3600 * 1000;  // twice what the longest one takes

// The sum of 12 uniform numbers: additions alone, so the same on every machine.
double deviate(Rng& rng) {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += rng.unit();
    return sum;
}

// At least a tenth of the mean.
int64_t draw_ms(Rng& rng, const Normal& n) {
    const double s = std::max(n.mean_s / 10, n.mean_s + n.deviation_s * deviate(rng));
    return static_cast<int64_t>(s * 1000);
}

int64_t exponential_ms(Rng& rng, double mean_s) {
    return 1 + static_cast<int64_t>(-std::log(1 - rng.unit()) * mean_s * 1000);
}

void add_slot(Rng& rng, const Background& b, uint32_t cluster, int64_t cpus,
              std::vector<Local>& out) {
    // Some are free at the beginning.
    const double share = static_cast<double>(b.free_s) / static_cast<double>(b.busy_s + b.free_s);
    int64_t at = 0;
    if (rng.chance(share)) at = exponential_ms(rng, static_cast<double>(b.free_s));
    while (at < horizon_ms) {
        const int64_t run = exponential_ms(rng, static_cast<double>(b.busy_s));
        out.push_back({at, run, cluster, cpus});
        at += run + exponential_ms(rng, static_cast<double>(b.free_s));
    }
}

std::vector<Local> locals_of(Rng& rng, const Background& others, size_t clusters) {
    std::vector<Local> out;
    for (uint32_t c = 0; c < clusters; ++c) {
        int64_t left = c == 0 ? others.others_large : others.others_small;
        while (left > 0) {
            const int64_t cpus = rng.between(1, std::min(left, slot_cpus_max));
            add_slot(rng, others, c, cpus, out);
            left -= cpus;
        }
    }
    std::stable_sort(out.begin(), out.end(),
                     [](const Local& a, const Local& b) { return a.submit_ms < b.submit_ms; });
    return out;
}

}  // namespace

std::span<const Experiment> experiments() { return published; }

World experiment_world(const Experiment& experiment, const Background& background, uint64_t seed,
                       const Terms& terms) {
    World out;
    Rng rng(seed * 8 + static_cast<uint64_t>(experiment.number));
    for (size_t c = 0; c < experiment.clusters; ++c)
        out.clusters.push_back({"fs" + std::to_string(c), c == 0 ? 144 : 64});
    int64_t ordered_left = jobs_of_each * experiment.ordered_of_ten / 10;
    for (size_t i = 0; i < jobs_of_each; ++i) {
        Job& job = out.jobs.emplace_back();
        const bool ordered = static_cast<int64_t>(rng.below(jobs_of_each - i)) < ordered_left;
        ordered_left -= ordered;
        job.kind = ordered ? Kind::ordered : Kind::unordered;
        for (uint32_t n = 0; n < 4; ++n)
            job.components.push_back(
                {experiment.component_cpus, ordered ? n % 2 : Component::anywhere});
        job.cpus = 4 * experiment.component_cpus;
        // Its components were apart, so what was published is stretched.
        job.run_ms = draw_ms(rng, experiment.run) * 1000 / terms.slowdown;
        job.estimate_ms = job.run_ms;
        job.overhead_ms = draw_ms(rng, experiment.overhead);
    }
    out.locals = locals_of(rng, background, experiment.clusters);
    out.terms = terms;
    // "A departure is noticed after a few seconds."
    out.notice_ms = 3000;
    return out;
}

}  // namespace souk::sim::coallocation
