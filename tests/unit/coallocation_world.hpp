// SPDX-License-Identifier: GPL-2.0-or-later
// Random small worlds of jobs of several components, and what must hold of any schedule of them, by
// brute force from what held which processors when.
#pragma once

#include <algorithm>
#include <map>
#include <set>

#include "kernel/base/rng.hpp"
#include "market/sim/coallocation_run.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit::coallocation {

using namespace sim::coallocation;

inline Job unordered(const std::vector<int64_t>& sizes) {
    Job job;
    job.components.reserve(sizes.size());
    for (const int64_t n : sizes) job.components.push_back({n}), job.cpus += n;
    return job;
}

inline Job flexible(int64_t cpus, int64_t least = 1, int64_t most = INT64_MAX) {
    Job job;
    job.kind = Kind::flexible;
    job.cpus = cpus, job.component_min = least, job.component_max = most;
    return job;
}

inline std::vector<Cluster> clusters_of(const std::vector<int64_t>& sizes) {
    std::vector<Cluster> out;
    out.reserve(sizes.size());
    for (const int64_t n : sizes) out.push_back({"c" + std::to_string(out.size()), n});
    return out;
}

inline Job random_job(Rng& rng, const std::vector<Cluster>& clusters, int64_t largest) {
    Job job;
    const auto kind = static_cast<Kind>(rng.below(4));
    const auto size = [&] { return rng.between(1, largest); };
    job.kind = kind;
    const int64_t parts = kind == Kind::total ? 1 : rng.between(1, 3);
    for (int64_t i = 0; i < parts; ++i) {
        Component c{size()};
        if (kind == Kind::ordered) c.cluster = static_cast<uint32_t>(rng.below(clusters.size()));
        job.cpus += c.cpus;
        if (kind != Kind::flexible) job.components.push_back(c);
    }
    if (kind == Kind::flexible) job.component_min = rng.between(1, std::min<int64_t>(2, job.cpus));
    job.run_ms = rng.between(1, 30);
    job.overhead_ms = rng.between(0, 2);
    return job;
}

struct Terrain {
    bool exact = true, background = false;
};

inline World random_world(Rng& rng, const Placement*& placement, std::unique_ptr<Placement>& owned,
                          std::string_view name, Terrain terrain) {
    World world;
    const int64_t clusters = rng.between(1, 4);
    std::vector<int64_t> sizes;
    for (int64_t i = 0; i < clusters; ++i) sizes.push_back(rng.between(2, 9));
    world.clusters = clusters_of(sizes);
    world.terms.slowdown = rng.between(10, 15) * 100;
    owned = make_placement(name, world.clusters);
    placement = owned.get();
    int64_t now = 0;
    while (world.jobs.size() < 40) {
        Job job = random_job(rng, world.clusters, 6);
        if (!placement->place(job, sizes)) continue;
        job.submit_ms = now += rng.between(0, 8);
        job.estimate_ms = job.run_ms + (terrain.exact ? 0 : rng.between(0, 40));
        world.jobs.push_back(job);
    }
    for (int64_t at = 0; terrain.background && at < now; at += rng.between(1, 20)) {
        const auto c = static_cast<uint32_t>(rng.below(sizes.size()));
        world.locals.push_back({at, rng.between(1, 20), c, rng.between(1, sizes[c])});
    }
    return world;
}

// Terms of moving and freezing, 40 jobs that bid, of those that `fits` takes, and what others run
// on the clusters meanwhile.
template <class Fits>
void fill_market(World& world, Rng& rng, Fits&& fits) {
    world.terms = {rng.between(10, 15) * 100, rng.between(0, 3), rng.between(0, 3),
                   rng.between(0, 3)};
    int64_t now = 0;
    while (world.jobs.size() < 40) {
        Job job = random_job(rng, world.clusters, 6);
        if (!fits(job)) continue;
        job.submit_ms = now += rng.between(0, 8);
        job.estimate_ms = job.run_ms + rng.between(0, 10);
        job.value = rng.between(1, 50);
        world.jobs.push_back(job);
    }
    for (int64_t t = 0; t < now; t += rng.between(5, 30)) {
        const auto c = static_cast<uint32_t>(rng.below(world.clusters.size()));
        world.locals.push_back({t, rng.between(1, 20), c, rng.between(1, 2)});
    }
}

// Everything that can be wrong with any schedule.
inline void judge(const World& world, const Outcome& outcome, bool moves) {
    std::map<int64_t, Idle> change;
    std::vector<int64_t> ran(world.jobs.size());
    for (const Stretch& s : outcome.stretches) {
        const Job& job = world.jobs[s.job];
        ck_assert(s.from_ms >= job.submit_ms && s.from_ms < s.to_ms);
        ck_assert(answers(s.where, job));
        ++ran[s.job];
        if (moves) continue;
        ck_assert_int_eq(s.from_ms, outcome.jobs[s.job].start_ms);
        ck_assert_int_eq(s.to_ms, outcome.jobs[s.job].end_ms);
        std::set<uint32_t> used;
        for (const Piece& p : s.where) used.insert(p.cluster);
        int64_t run = job.run_ms * 1000;
        if (used.size() > 1) run = job.run_ms * world.terms.slowdown;
        ck_assert_int_eq(s.to_ms - s.from_ms, job.overhead_ms + (run + 999) / 1000);
    }
    for (size_t i = 0; i < ran.size(); ++i) ck_assert(moves ? ran[i] >= 1 : ran[i] == 1);
    ck_assert(moves || outcome.locals.size() <= world.locals.size());
    for (const std::vector<Stretch>* all : {&outcome.stretches, &outcome.locals})
        for (const Stretch& s : *all)
            for (const Piece& p : s.where)
                for (const auto& [at, sign] : {std::pair{s.from_ms, 1}, std::pair{s.to_ms, -1}}) {
                    Idle& c = change[at];
                    c.resize(world.clusters.size());
                    c[p.cluster] += sign * p.cpus;
                }
    Idle held(world.clusters.size());
    for (const auto& [at, c] : change)
        for (size_t i = 0; i < held.size(); ++i) {
            held[i] += c[i];
            ck_assert_msg(held[i] >= 0 && held[i] <= world.clusters[i].cpus,
                          "cluster %zu holds %ld of %ld at %ld", i, static_cast<long>(held[i]),
                          static_cast<long>(world.clusters[i].cpus), static_cast<long>(at));
        }
}

inline Outcome run_of(const World& world, const Placement& placement, std::string_view policy,
                      const PolicyOptions& options = {}) {
    const auto made = make_policy(policy, placement, options);
    ck_assert(made != nullptr);
    Result<Outcome> out = run(world, *made);
    ck_assert_msg(out.has_value(), "%s", out ? "" : out.error().message.c_str());
    return std::move(*out);
}

template <class F>
void each_world(int count, Terrain terrain, F&& with) {
    for (int seed = 1; seed <= count; ++seed) {
        Rng rng(static_cast<uint64_t>(seed));
        const auto all = placements();
        const Placement* placement = nullptr;
        std::unique_ptr<Placement> owned;
        const World world = random_world(rng, placement, owned,
                                         all[static_cast<size_t>(seed) % all.size()].name, terrain);
        with(world, *placement);
    }
}

}  // namespace souk::unit::coallocation
