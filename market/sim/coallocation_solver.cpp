// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/sim/coallocation_solver.hpp"

#include <algorithm>
#include <string>

#include "kernel/base/check.hpp"
#include "market/core/solver.hpp"

namespace souk::sim::coallocation {
namespace {

using State = Progress::State;
using market::JobDemand;
using market::JobKey;
using market::ProviderKey;
using market::Solver;

class SolverPolicy : public Policy {
  public:
    SolverPolicy(std::span<const Cluster> clusters, int64_t patience_ms)
        : clusters_(clusters), patience_ms_(patience_ms) {}

    std::vector<Order> act(const View& view) override {
        Solver solver;
        add_clusters(solver, view);
        for (const auto jobs : {view.running, view.queue})
            for (const uint32_t job : jobs) add(solver, view, job);
        solver.solve(Nanos::from_ms(view.now_ms));
        std::vector<Order> out;
        for (const auto jobs : {view.running, view.queue})
            for (const uint32_t job : jobs) {
                Allocation where = places(solver, view.jobs[job], job);
                const bool runs = view.progress[job].state == State::running;
                if (runs ? where != view.progress[job].where : !where.empty())
                    out.push_back({job, std::move(where)});
            }
        return out;
    }

  private:
    static constexpr uint64_t stride = 2 * Solver::gang_components_max;
    static uint64_t key_of(uint32_t job) { return 1 + job * stride; }

    // With what the background leaves of them.
    void add_clusters(Solver& solver, const View& view) const {
        Idle free(view.idle.begin(), view.idle.end());
        for (const uint32_t job : view.running) give(free, view.progress[job].where);
        for (size_t c = 0; c < clusters_.size(); ++c) {
            if (free[c] < 1) continue;
            market::ProviderSpec p;
            p.cpus = static_cast<int32_t>(free[c]);
            MUST(solver.add_provider(ProviderKey{c + 1}, p));
        }
    }
    void add(Solver& solver, const View& view, uint32_t job) const {
        const Job& request = view.jobs[job];
        const Progress& at = view.progress[job];
        const bool overdue = at.still_ms > std::max(patience_ms_, 10 * request.estimate_ms);
        JobDemand spec;
        const int64_t bid = std::min(request.value, money_max.micro - 1);
        spec.value = overdue ? money_max : Money{bid};
        spec.arrival = Nanos::from_ms(at.came_ms);
        spec.user = job;
        std::vector<JobDemand> components;
        for (size_t i = 0; i < request.components.size(); ++i) {
            spec.cpus = static_cast<int32_t>(request.components[i].cpus);
            // A cluster that the background has filled is not there.
            const bool there = at.state == State::running &&
                               solver.provider(ProviderKey{at.where[i].cluster + 1}).has_value();
            spec.state = there                        ? market::JobState::running
                         : at.state == State::waiting ? market::JobState::waiting
                                                      : market::JobState::frozen;
            spec.place = there ? ProviderKey{at.where[i].cluster + 1} : ProviderKey{};
            components.push_back(spec);
        }
        if (components.size() == 1)
            MUST(solver.add_job(JobKey{key_of(job)}, components.front()));
        else
            MUST(solver.add_gang(JobKey{key_of(job)}, components, components.size()).has_value());
    }
    static Allocation places(const Solver& solver, const Job& request, uint32_t job) {
        Allocation where;
        for (size_t i = 0; i < request.components.size(); ++i) {
            const ProviderKey at = solver.place(JobKey{key_of(job) + i});
            if (at.n == 0) return {};
            where.push_back({static_cast<uint32_t>(at.n - 1), request.components[i].cpus});
        }
        return where;
    }

    const std::span<const Cluster> clusters_;
    const int64_t patience_ms_;
};

}  // namespace

Result<std::unique_ptr<Policy>> make_solver_policy(const World& world, int64_t patience_ms) {
    for (const Cluster& c : world.clusters)
        if (c.cpus > market::cpus_max)
            return fail("the solver takes at most " + std::to_string(market::cpus_max) +
                        " processors in a cluster; " + c.name + " has " + std::to_string(c.cpus));
    for (size_t i = 0; i < world.jobs.size(); ++i) {
        const Job& job = world.jobs[i];
        const std::string name = "job " + std::to_string(i + 1);
        if (!anywhere(job) || job.kind == Kind::flexible)
            return fail(name +
                        ": the solver takes no request that names a cluster, nor flexible "
                        "ones");
        if (job.components.size() > Solver::gang_components_max)
            return fail(name + ": the solver takes at most " +
                        std::to_string(Solver::gang_components_max) + " components");
    }
    return std::make_unique<SolverPolicy>(world.clusters, patience_ms);
}

}  // namespace souk::sim::coallocation
