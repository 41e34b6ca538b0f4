// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/sim/decider.hpp"

#include <map>
#include <set>

namespace souk::sim {
namespace {

using market::JobDemand;
using market::JobKey;
using market::Pin;
using market::ProviderKey;

struct Room {
    int64_t cpus = 0, memory_mb = 0;
    bool holds(const JobDemand& job) const {
        return cpus >= job.cpus && memory_mb >= job.memory_mb;
    }
    void take(const JobDemand& job) { cpus -= job.cpus, memory_mb -= job.memory_mb; }
};

// The room of each provider that is named, empty.
class Rooms {
  public:
    explicit Rooms(const market::Solver& solver) : solver_(solver) {}
    Room& of(ProviderKey key) {
        const auto [at, first] = rooms_.try_emplace(key);
        if (!first) return at->second;
        if (const auto p = solver_.provider(key)) at->second = {p->cpus, p->memory_mb};
        return at->second;
    }

  private:
    const market::Solver& solver_;
    std::map<ProviderKey, Room> rooms_;
};

struct Wanted {
    JobKey job;
    ProviderKey provider;
    JobDemand spec;
};

Result<std::vector<Wanted>> checked(const market::Solver& solver,
                                    std::span<const Placement> wanted) {
    std::vector<Wanted> out;
    std::set<uint32_t> named;
    Rooms rooms(solver);
    for (const Placement& p : wanted) {
        const std::string line =
            "job " + std::to_string(p.job + 1) + " on provider " + std::to_string(p.provider + 1);
        const JobKey job{uint64_t{p.job} + 1};
        const ProviderKey provider{uint64_t{p.provider} + 1};
        const auto spec = solver.job(job);
        const auto place = solver.provider(provider);
        if (!spec) return fail(line + ": no such job");
        if (!place) return fail(line + ": no such provider");
        if (!named.insert(p.job).second) return fail(line + ": the job is placed already");
        if (place->reserve > spec->value) return fail(line + ": its value is below the reserve");
        Room& room = rooms.of(provider);
        if (!room.holds(*spec)) return fail(line + ": the provider has no room left");
        room.take(*spec);
        out.push_back({job, provider, *spec});
    }
    return out;
}

}  // namespace

Result<std::vector<market::Solver::Assignment>> possible_now(const market::Solver& solver,
                                                             std::span<const Placement> wanted,
                                                             std::span<const uint32_t> under_way) {
    TRY_ASSIGN(const std::vector<Wanted> all, checked(solver, wanted));
    Rooms rooms(solver);
    std::vector<market::Solver::Assignment> out;
    const auto place = [&](const Wanted& w, ProviderKey provider) {
        rooms.of(provider).take(w.spec);
        out.push_back({w.job, provider});
    };
    for (const uint32_t job : under_way) {
        const JobKey key{uint64_t{job} + 1};
        const JobDemand spec = *solver.job(key);
        place({key, spec.place, spec}, spec.place);
    }
    for (const Wanted& w : all)
        if (w.spec.pin == Pin::free && solver.place(w.job) == w.provider) place(w, w.provider);
    for (const Wanted& w : all) {
        const ProviderKey here = solver.place(w.job);
        if (w.spec.pin != Pin::free || here == w.provider) continue;
        if (rooms.of(w.provider).holds(w.spec))
            place(w, w.provider);
        else if (here.n != 0 && rooms.of(here).holds(w.spec))
            place(w, here);
    }
    return out;
}

}  // namespace souk::sim
