// SPDX-License-Identifier: GPL-2.0-or-later
// Random markets, small enough that every property of an allocation can be checked by its
// definition.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <map>

#include "kernel/base/rng.hpp"
#include "market/core/allocator.hpp"
#include "market/core/solver.hpp"
#include "tests/unit/unit.hpp"

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
    bool files = false;  // half of the jobs have files at a provider, or at a node that is none
    bool waits = false;  // jobs have waited: their bids count for more
};

// The rank of a job by the words of rank.hpp.
inline Rank rank_in_words(const JobDemand& j, uint64_t key) {
    const __int128 counts = static_cast<__int128>(j.value.micro) * j.weight / 1024;
    return {-static_cast<int64_t>(counts), j.arrival.ns, key};
}

inline constexpr Shape shapes[] = {
    {12, 5, 1, 1, 0, 0, 1, 1, false, false},
    {12, 5, 1, 3, 0, 0, 3, 1, false, false},
    {14, 5, 1, 2, 0, 0, 2, 3, false, false},
    {14, 5, 3, 4, 0, 0, 2, 2, false, false},
    {14, 5, 3, 4, 9, 12, 1, 1, false, false},
    {16, 6, 3, 4, 9, 12, 3, 3, true, true},
    {20, 6, 1, 2, 9, 12, 1, 2, true, false},
    {16, 6, 3, 4, 9, 12, 3, 3, true, true, false, true},
    {14, 5, 1, 2, 0, 0, 2, 3, false, false, false, true},
};

struct AllocatorWorld {
    Rng rng;
    Shape shape;
    std::map<uint64_t, JobDemand> jobs;
    std::map<uint64_t, ProviderSpec> providers;
    uint64_t next_job = 1, next_provider = 1001;
    int64_t clock_s = 0;

    AllocatorWorld(uint64_t seed, const Shape& s) : rng(seed), shape(s) {}
    JobDemand random_job() {
        JobDemand j;
        j.value = Money::units(rng.between(1, 12));
        j.cpus = static_cast<int32_t>(rng.between(1, shape.cpus_job));
        j.memory_mb = shape.memory_job ? rng.between(0, shape.memory_job) : 0;
        j.move_bytes = shape.memory_job ? -1 : rng.between(1, 50) * 1'000'000;
        j.arrival = Nanos::from_s(clock_s);
        if (shape.files) j.files = random_files();
        if (shape.waits) j.weight = random_weight();
        return j;
    }
    int32_t random_weight() {
        return rng.chance(0.5) ? weight_plain : static_cast<int32_t>(rng.between(1024, 9000));
    }
    FileTraffic random_files() {
        if (rng.chance(0.5)) return {};
        return {
            {rng.between(0, 1) == 0 || providers.empty() ? 1001 + rng.below(8) : any(providers)},
            rng.between(0, 3) * 20'000'000,
            rng.between(0, 3) * 100,
            Nanos::from_ms(rng.between(0, 4))};
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
void random_event(AllocatorWorld& w, Target& t) {
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
        if constexpr (requires { t.change_weight(JobKey{}, 0); })
            if (w.shape.waits) t.change_weight(JobKey{j}, w.random_weight());
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
        JobDemand s = *t.job(JobKey{j});
        const JobDemand fresh = w.random_job();
        s.cpus = fresh.cpus;
        s.memory_mb = fresh.memory_mb;
        if (w.shape.files) s.files = fresh.files;
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

// Two allocators that see the same; one repairs, the other goes through everybody.
struct Pair {
    Allocator a, b;
    template <class F>
    void both(F&& f) {
        f(a), f(b);
    }
    void add_job(JobKey k, const JobDemand& s) {
        both([&](Allocator& x) { x.add_job(k, s); });
    }
    void change_job(JobKey k, const JobDemand& s) {
        both([&](Allocator& x) { x.change_job(x.find_job(k), s); });
    }
    void change_value(JobKey k, Money v) {
        both([&](Allocator& x) { x.change_value(x.find_job(k), v); });
    }
    void change_weight(JobKey k, int32_t weight) {
        both([&](Allocator& x) {
            const uint32_t j = x.find_job(k);
            x.change_value(j, x.jobs()[j].value, weight);
        });
    }
    void remove_job(JobKey k) {
        both([&](Allocator& x) { x.remove_job(x.find_job(k)); });
    }
    void add_provider(ProviderKey k, const ProviderSpec& s) {
        both([&](Allocator& x) { x.add_provider(k, s); });
    }
    void change_provider(ProviderKey k, const ProviderSpec& s) {
        both([&](Allocator& x) { x.change_provider(x.find_machine(k), s); });
    }
    void remove_provider(ProviderKey k) {
        both([&](Allocator& x) { x.remove_provider(x.find_machine(k)); });
    }
    std::optional<JobDemand> job(JobKey k) const {
        const uint32_t i = a.find_job(k);
        const auto& j = a.jobs()[i];
        JobDemand s;
        s.value = j.value, s.cpus = j.cpus, s.memory_mb = j.memory_mb, s.arrival = j.arrival(),
        s.state = j.state;
        s.place = a.place_of(i), s.pin = j.pin, s.move_bytes = a.details(i).move_bytes;
        s.only = a.details(i).only, s.weight = a.details(i).weight;
        if (a.details(i).files) s.files = a.details(i).files->traffic;
        return s;
    }
};

inline bool same(const Change& x, const Change& y) {
    return x.job == y.job && x.kind == y.kind && x.from == y.from && x.to == y.to &&
           x.cause == y.cause && x.other == y.other;
}
// The next decision of both, the one repaired and the other made anew: the same changes. A failure
// names the market: its rules, shape, seed and step.
inline void decide_alike(Pair& t, const AllocatorWorld& w, const std::array<ptrdiff_t, 4>& which) {
    t.a.solve(Nanos::from_s(w.clock_s));
    t.b.solve_all(Nanos::from_s(w.clock_s));
    ck_assert_msg(std::equal(t.a.changes().begin(), t.a.changes().end(), t.b.changes().begin(),
                             t.b.changes().end(), same),
                  "rules %td shape %td seed %td step %td", which[0], which[1], which[2], which[3]);
}

inline const Rules rules_of_all[] = {
    {},
    {Nanos::from_s(60), 100'000'000, {}, {}, 0, Nanos::from_s(60)},
    {Nanos::from_s(5), 1'000'000, Money::units(3), Nanos::from_s(4), 0, Nanos::from_s(60)},
    {{}, 100'000'000, {}, Nanos::from_s(7), 2, Nanos::from_s(20)},
    {Nanos::from_s(20), 10'000'000, {}, {}, 1, Nanos::from_s(9)},
};

// So in one market, for 250 decisions: `event` is one that both see, `check` looks at them after
// each decision.
template <class Event, class Check>
void decide_alike_in(size_t rules, size_t shape_of, uint64_t seed, Event&& event, Check&& check) {
    Shape shape = shapes[shape_of];
    shape.jobs_max *= 4;
    shape.providers_max *= 3;
    AllocatorWorld w(seed * 7919, shape);
    Pair t;
    t.both([&](Allocator& x) { x.set_rules(rules_of_all[rules]); });
    for (int step = 0; step < 250; ++step) {
        for (uint64_t i = 1 + w.rng.below(3); i > 0; --i) event(w, t);
        decide_alike(t, w,
                     {static_cast<ptrdiff_t>(rules), static_cast<ptrdiff_t>(shape_of),
                      static_cast<ptrdiff_t>(seed), step});
        check(t);
    }
}

// And in markets of every shape under all rules, `seeds` of each.
template <class Event, class Check>
void decide_alike_in_all(uint64_t seeds, Event&& event, Check&& check) {
    for (size_t rules = 0; rules < std::size(rules_of_all); ++rules)
        for (size_t shape = 0; shape < std::size(shapes); ++shape)
            for (uint64_t seed = 1; seed <= seeds; ++seed)
                decide_alike_in(rules, shape, seed, event, check);
}

inline uint64_t place_of(const Solver& s, uint64_t k) {
    const auto j = s.job(JobKey{k});
    return j->state == JobState::running ? j->place.n : 0;
}

}  // namespace souk::unit
