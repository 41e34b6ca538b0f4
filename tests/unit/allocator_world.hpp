// SPDX-License-Identifier: GPL-2.0-or-later
// Random markets, small enough that every property of an allocation can be checked by its
// definition.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>

#include "kernel/base/rng.hpp"
#include "market/core/solver.hpp"

namespace souk::unit {
using namespace souk::market;

struct Shape {
    int jobs_max = 12;
    int providers_max = 5;
    int cpus_job = 1, cpus_machine = 1;
    int memory_job = 0, memory_machine = 0;  // 0: memory is never in the way
    int speeds = 1, reserves = 1;
    bool bars = false;
    bool pins = false;
};

inline constexpr Shape shapes[] = {
    {12, 5, 1, 1, 0, 0, 1, 1, false, false},  {12, 5, 1, 3, 0, 0, 3, 1, false, false},
    {14, 5, 1, 2, 0, 0, 2, 3, false, false},  {14, 5, 3, 4, 0, 0, 2, 2, false, false},
    {14, 5, 3, 4, 9, 12, 1, 1, false, false}, {16, 6, 3, 4, 9, 12, 3, 3, true, true},
    {20, 6, 1, 2, 9, 12, 1, 2, true, false},
};

struct World {
    Rng rng;
    Shape shape;
    std::map<uint64_t, JobSpec> jobs;
    std::map<uint64_t, ProviderSpec> providers;
    uint64_t next_job = 1, next_provider = 1001;
    int64_t clock_s = 0;

    World(uint64_t seed, const Shape& s) : rng(seed), shape(s) {}
    JobSpec random_job() {
        JobSpec j;
        j.value = Money::units(rng.between(1, 12));
        j.cpus = static_cast<int32_t>(rng.between(1, shape.cpus_job));
        j.memory_mb = shape.memory_job ? rng.between(0, shape.memory_job) : 0;
        j.move_bytes = shape.memory_job ? -1 : rng.between(1, 50) * 1'000'000;
        j.arrival = Nanos::from_s(clock_s);
        return j;
    }
    ProviderSpec random_provider() {
        ProviderSpec p;
        p.cpus = static_cast<int32_t>(rng.between(1, shape.cpus_machine));
        p.memory_mb = shape.memory_machine ? rng.between(1, shape.memory_machine) : 1000;
        p.speed = static_cast<int32_t>(50 * rng.between(1, shape.speeds));
        p.reserve = Money::units(rng.between(1, shape.reserves) * 2);
        p.accepting = !rng.chance(0.1);
        return p;
    }
    template <class Map>
    uint64_t any(const Map& map) {
        auto it = map.begin();
        std::advance(it, static_cast<ptrdiff_t>(rng.below(map.size())));
        return it->first;
    }
};

// One random event on a Solver-like target (Solver or the pair below) and on the world.
template <class Target>
void random_event(World& w, Target& t) {
    ++w.clock_s;
    const uint64_t kind = w.rng.below(12);
    if (w.providers.empty() ||
        (kind == 0 && static_cast<int>(w.providers.size()) < w.shape.providers_max)) {
        t.add_provider(ProviderKey{w.next_provider},
                       w.providers[w.next_provider] = w.random_provider());
        ++w.next_provider;
    } else if (w.jobs.empty() || (kind < 6 && static_cast<int>(w.jobs.size()) < w.shape.jobs_max)) {
        t.add_job(JobKey{w.next_job}, w.jobs[w.next_job] = w.random_job());
        ++w.next_job;
    } else if (kind < 8) {
        const uint64_t j = w.any(w.jobs);
        t.remove_job(JobKey{j});
        w.jobs.erase(j);
    } else if (kind == 8) {
        const uint64_t j = w.any(w.jobs);
        t.change_value(JobKey{j}, Money::units(w.rng.between(1, 12)));
    } else if (kind == 9) {
        const uint64_t p = w.any(w.providers);
        t.change_provider(ProviderKey{p}, w.providers[p] = w.random_provider());
    } else if (kind == 10 && w.rng.chance(0.3)) {
        const uint64_t p = w.any(w.providers);
        t.remove_provider(ProviderKey{p});
        w.providers.erase(p);
    } else {
        const uint64_t j = w.any(w.jobs);
        JobSpec s = *t.job(JobKey{j});
        const JobSpec fresh = w.random_job();
        s.cpus = fresh.cpus;
        s.memory_mb = fresh.memory_mb;
        s.barred.clear();
        if (w.shape.bars && w.rng.chance(0.5)) s.barred = {ProviderKey{w.any(w.providers)}};
        s.pin = Pin::free;
        if (w.shape.pins && w.rng.chance(0.3))
            s.pin = s.state == JobState::running ? Pin::stay : Pin::frozen;
        if (w.rng.chance(0.2) && s.state == JobState::running) {  // a move that failed
            s.place = ProviderKey{w.any(w.providers)};
            if (s.pin == Pin::stay) s.pin = Pin::free;
        }
        t.change_job(JobKey{j}, s);
    }
}

inline uint64_t place_of(const Solver& s, uint64_t k) {
    const auto j = s.job(JobKey{k});
    return j->state == JobState::running ? j->place.n : 0;
}

}  // namespace souk::unit
