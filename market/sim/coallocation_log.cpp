// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/sim/coallocation_log.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernel/base/rng.hpp"

namespace souk::sim::coallocation {
namespace {

// Clusters in a drawn order.
std::vector<uint32_t> shuffled(Rng& rng, size_t clusters) {
    std::vector<uint32_t> out(clusters);
    std::iota(out.begin(), out.end(), 0);
    for (size_t i = clusters; i > 1; --i) std::swap(out[i - 1], out[rng.below(i)]);
    return out;
}

void set_request(Rng& rng, const LogTerms& log, size_t clusters, Job& job) {
    job.kind = log.kind;
    if (log.kind == Kind::flexible) {
        job.component_max = log.limit;
        return;
    }
    job.components = split(job.cpus, log.kind == Kind::total ? job.cpus : log.limit);
    if (log.kind != Kind::ordered) return;
    const std::vector<uint32_t> order = shuffled(rng, clusters);
    for (size_t i = 0; i < job.components.size(); ++i)
        job.components[i].cluster = order[i % clusters];
}

int64_t value_of(Rng& rng, const LogTerms& log, const Job& job) {
    constexpr int64_t worth = int64_t{1} << 50;
    if (!log.equal_worth) return rng.between(10, 60);
    return std::max<int64_t>(1, worth / 1000 / (job.cpus * job.estimate_ms));
}

// The mean time between arrivals that gives the load.
double between_ms(const World& world, double load) {
    double work = 0, cpus = 0;
    for (const Job& job : world.jobs)
        work += static_cast<double>(job.cpus) * static_cast<double>(job.run_ms);
    for (const Cluster& c : world.clusters) cpus += static_cast<double>(c.cpus);
    return work / static_cast<double>(world.jobs.size()) / (cpus * load);
}

// Whether it fits when all clusters are empty, whatever the placement.
bool can_run(const World& world, const Job& job) {
    Idle empty;
    for (const Cluster& c : world.clusters) empty.push_back(c.cpus);
    for (const PlacementEntry& entry : placements())
        if (!entry.make(world.clusters)->place(job, empty)) return false;
    return true;
}

}  // namespace

Result<World> log_world(const SwfTrace& trace, std::vector<Cluster> clusters, const LogTerms& log,
                        const Terms& terms) {
    World out;
    out.clusters = std::move(clusters);
    out.terms = terms;
    out.backlog = log.backlog;
    int64_t cpus = 0;
    for (const Cluster& c : out.clusters) cpus += c.cpus;
    const Workload kept = workload_of(trace, cpus, Procs::allocated, Estimates::user);
    if (kept.jobs.empty()) return fail("the log has no job that could be drawn");
    Rng rng(log.seed);
    for (size_t drawn = 0; out.jobs.size() < log.jobs; ++drawn) {
        if (drawn > 10 * log.jobs) return fail("hardly a job of the log fits the clusters");
        const ReplayJob& from = kept.jobs[rng.below(kept.jobs.size())];
        Job job;
        job.cpus = from.procs;
        job.run_ms = 1000 * std::min<int64_t>(from.run_s, log.run_max_s);
        job.estimate_ms =
            std::max(job.run_ms, 1000 * std::min<int64_t>(from.estimate_s, log.run_max_s));
        set_request(rng, log, out.clusters.size(), job);
        job.value = value_of(rng, log, job);
        if (can_run(out, job)) out.jobs.push_back(std::move(job));
    }
    const double between = between_ms(out, log.load);
    double at = 0;
    for (Job& job : out.jobs) {
        job.submit_ms = static_cast<int64_t>(at);
        at -= std::log(1 - rng.unit()) * between;
    }
    return out;
}

}  // namespace souk::sim::coallocation
