// SPDX-License-Identifier: GPL-2.0-or-later
// Random markets, small enough that every property can be checked by its definition, and the incremental solve against
// two others: the full pass of the same code, and a naive greedy that is written here from the header's words.
#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "kernel/base/rng.hpp"
#include "market/core/allocator.hpp"
#include "market/core/solver.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using namespace souk::market;

namespace {

struct Shape {
    int jobs_max = 12;
    int providers_max = 5;
    int cpus_job = 1, cpus_machine = 1;
    int memory_job = 0, memory_machine = 0;  // 0: memory is never in the way
    int speeds = 1, reserves = 1;
    bool bars = false;
    bool pins = false;
};

constexpr Shape shapes[] = {
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
    if (w.providers.empty() || (kind == 0 && static_cast<int>(w.providers.size()) < w.shape.providers_max)) {
        t.add_provider(ProviderKey{w.next_provider}, w.providers[w.next_provider] = w.random_provider());
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
        if (w.shape.pins && w.rng.chance(0.3)) s.pin = s.state == JobState::running ? Pin::stay : Pin::frozen;
        if (w.rng.chance(0.2) && s.state == JobState::running) {  // a move that failed
            s.place = ProviderKey{w.any(w.providers)};
            if (s.pin == Pin::stay) s.pin = Pin::free;
        }
        t.change_job(JobKey{j}, s);
    }
}

// The naive greedy, from the words of allocator.hpp: all jobs in rank order, a table of who is where.
struct Naive {
    struct J {
        JobSpec s;
        uint64_t place = 0;  // where it is physically
        bool soft = false;   // not yet had its turn, still on its machine
        uint64_t result = 0;
    };
    std::map<uint64_t, J> jobs;
    std::map<uint64_t, ProviderSpec> providers;

    Rank rank(uint64_t k) const {
        const JobSpec& s = jobs.at(k).s;
        return s.pin == Pin::stay ? Rank{INT64_MIN, 0, k} : Rank::of(s.value, s.arrival, JobKey{k});
    }
    bool eligible(const JobSpec& s, uint64_t p) const {
        const ProviderSpec& m = providers.at(p);
        return m.accepting && m.reserve <= s.value &&
               std::find(s.barred.begin(), s.barred.end(), ProviderKey{p}) == s.barred.end();
    }
    // Guests of p, strongest first: those with a final place and those still there.
    std::vector<uint64_t> guests(uint64_t p) const {
        std::vector<uint64_t> g;
        for (const auto& [k, j] : jobs)
            if (j.result == p || (j.soft && j.place == p)) g.push_back(k);
        std::sort(g.begin(), g.end(), [&](uint64_t a, uint64_t b) { return rank(a) < rank(b); });
        return g;
    }
    // The guests that must go from p for this need, weakest first; false if those after `k` do not suffice.
    bool must_go(uint64_t p, const JobSpec& s, const Rank& r, std::vector<uint64_t>& go) const {
        int64_t cpus = providers.at(p).cpus, mb = providers.at(p).memory_mb;
        auto g = guests(p);
        for (const uint64_t k : g) cpus -= jobs.at(k).s.cpus, mb -= jobs.at(k).s.memory_mb;
        go.clear();
        while (cpus < s.cpus || mb < s.memory_mb) {
            if (g.empty() || rank(g.back()) <= r) return false;
            cpus += jobs.at(g.back()).s.cpus;
            mb += jobs.at(g.back()).s.memory_mb;
            go.push_back(g.back());
            g.pop_back();
        }
        return true;
    }
    ClassKey cls(uint64_t p) const { return class_of(providers.at(p).speed, providers.at(p).reserve); }

    void solve() {
        for (auto& [k, j] : jobs) {
            const bool there = j.place != 0 && providers.count(j.place);
            if (j.s.pin == Pin::stay && there) j.result = j.place;
            j.soft = j.s.pin == Pin::free && j.s.state == JobState::running && there && eligible(j.s, j.place);
        }
        for (const auto& [p, m] : providers) {  // whoever is too much where it is
            for (;;) {
                int64_t cpus = m.cpus, mb = m.memory_mb;
                auto g = guests(p);
                for (const uint64_t k : g) cpus -= jobs.at(k).s.cpus, mb -= jobs.at(k).s.memory_mb;
                if ((cpus >= 0 && mb >= 0) || g.empty() || !jobs.at(g.back()).soft) break;
                jobs.at(g.back()).soft = false;
            }
        }
        std::vector<uint64_t> order;
        for (const auto& [k, j] : jobs)
            if (j.s.pin == Pin::free) order.push_back(k);
        std::sort(order.begin(), order.end(), [&](uint64_t a, uint64_t b) { return rank(a) < rank(b); });
        for (const uint64_t k : order) turn(k);
        std::stable_sort(order.begin(), order.end(), [&](uint64_t a, uint64_t b) { return bytes(a) > bytes(b); });
        for (const bool frozen : {false, true})
            for (const uint64_t k : order)
                if ((jobs.at(k).s.state == JobState::frozen) == frozen) take_back(k);
    }

    int64_t bytes(uint64_t k) const {
        const JobSpec& s = jobs.at(k).s;
        return s.move_bytes >= 0 ? s.move_bytes : s.memory_mb * 1'000'000;
    }
    bool at(uint64_t k, uint64_t p) const { return jobs.at(k).s.state == JobState::running && jobs.at(k).place == p; }
    bool fits_all(uint64_t p) const {
        int64_t cpus = providers.at(p).cpus, mb = providers.at(p).memory_mb;
        for (const uint64_t k : guests(p)) cpus -= jobs.at(k).s.cpus, mb -= jobs.at(k).s.memory_mb;
        return cpus >= 0 && mb >= 0;
    }
    bool somebody_wants(uint64_t p) const {
        std::vector<uint64_t> go;
        for (const auto& [k, j] : jobs)
            if (j.s.pin == Pin::free && eligible(j.s, p) && (!j.result || cls(p) < cls(j.result)) &&
                must_go(p, j.s, rank(k), go))
                return true;
        return false;
    }
    void take_back(uint64_t d) {
        J& j = jobs.at(d);
        const bool frozen = j.s.state == JobState::frozen;
        const uint64_t p = frozen ? j.s.place.n : j.place;
        if (j.s.state == JobState::waiting || !j.result || !p || p == j.result || !providers.count(p)) return;
        if (cls(p) != cls(j.result) || !eligible(j.s, p)) return;
        uint64_t best = 0;
        int64_t least = bytes(d);
        for (const uint64_t x : guests(p)) {
            J& o = jobs.at(x);
            const bool lies_here = frozen && o.s.state == JobState::frozen && o.s.place.n == p;
            const int64_t saves = at(x, p) || lies_here ? bytes(x) : 0;
            if ((frozen && at(x, p)) || o.s.pin != Pin::free || saves > least || saves >= bytes(d)) continue;
            if (!eligible(o.s, j.result)) continue;
            std::swap(o.result, j.result);
            if (fits_all(o.result) && fits_all(j.result)) least = saves, best = x;
            std::swap(o.result, j.result);
        }
        if (!best) return;
        J& o = jobs.at(best);
        std::swap(o.result, j.result);
        if (somebody_wants(o.result) || somebody_wants(j.result)) std::swap(o.result, j.result);
    }

    void turn(uint64_t k) {
        J& j = jobs.at(k);
        std::vector<uint64_t> go;
        ClassKey best = class_none;
        const bool was_soft = j.soft;
        j.soft = false;
        for (const auto& [p, m] : providers)
            if (eligible(j.s, p) && must_go(p, j.s, rank(k), go)) best = std::min(best, cls(p));
        if (best == class_none) return;
        uint64_t to = 0;
        const bool running = j.s.state == JobState::running && j.place != 0 && providers.count(j.place);
        if (running && eligible(j.s, j.place) && cls(j.place) == best &&
            (was_soft || must_go(j.place, j.s, rank(k), go)))
            to = j.place;
        auto free_at = [&](uint64_t p) {
            return eligible(j.s, p) && cls(p) == best && must_go(p, j.s, rank(k), go) && go.empty();
        };
        if (!to && j.s.state == JobState::frozen && providers.count(j.s.place.n) && free_at(j.s.place.n))
            to = j.s.place.n;
        for (const auto& [p, m] : providers)
            if (!to && free_at(p)) to = p;
        if (!to) {
            Rank weakest = rank(k);
            for (const auto& [p, m] : providers) {
                if (!eligible(j.s, p) || cls(p) != best || !must_go(p, j.s, rank(k), go)) continue;
                if (rank(go.back()) > weakest) weakest = rank(go.back()), to = p;
            }
        }
        must_go(to, j.s, rank(k), go);
        for (const uint64_t d : go) jobs.at(d).soft = false;
        j.result = to;
    }
};

Naive snapshot(const World& w, const Solver& s) {
    Naive n;
    n.providers = w.providers;
    for (const auto& [k, spec] : w.jobs) {
        n.jobs[k].s = *s.job(JobKey{k});
        if (n.jobs[k].s.state == JobState::running || n.jobs[k].s.pin == Pin::stay)
            n.jobs[k].place = n.jobs[k].s.place.n;
    }
    return n;
}

uint64_t place_of(const Solver& s, uint64_t k) {
    const auto j = s.job(JobKey{k});
    return j->state == JobState::running ? j->place.n : 0;
}

START_TEST(solve_equals_the_naive_greedy_after_every_event) {
    for (const Shape& shape : shapes)
        for (uint64_t seed = 1; seed <= 12; ++seed) {
            World w(seed * 977, shape);
            Solver s;
            for (int step = 0; step < 150; ++step) {
                random_event(w, s);
                Naive n = snapshot(w, s);
                n.solve();
                s.solve(Nanos::from_s(w.clock_s));
                for (const auto& [k, j] : n.jobs) {
                    if (j.s.pin == Pin::stay && j.s.state == JobState::running && !w.providers.count(j.place)) continue;
                    ck_assert_msg(place_of(s, k) == j.result, "shape %d seed %d step %d: job %d is on %d, not %d",
                                  static_cast<int>(&shape - shapes), static_cast<int>(seed), step, static_cast<int>(k),
                                  static_cast<int>(place_of(s, k)), static_cast<int>(j.result));
                }
            }
        }
}
END_TEST

START_TEST(nobody_has_justified_envy_and_no_provider_is_below_its_reserve) {
    for (const Shape& shape : shapes)
        for (uint64_t seed = 1; seed <= 20; ++seed) {
            World w(seed * 31 + 7, shape);
            Solver s;
            for (int step = 0; step < 100; ++step) {
                for (uint64_t i = w.rng.below(4); i > 0; --i) random_event(w, s);
                s.solve(Nanos::from_s(w.clock_s));
                std::map<uint64_t, std::pair<int64_t, int64_t>> used;
                for (const auto& [k, spec] : w.jobs) {
                    const JobSpec j = *s.job(JobKey{k});
                    const uint64_t p = place_of(s, k);
                    if (!p || j.pin != Pin::free) continue;
                    ck_assert(w.providers.count(p) && w.providers[p].accepting && w.providers[p].reserve <= j.value);
                }
                // Envy by its definition: k would fit on a faster machine once all below k's rank are taken off.
                for (const auto& [k, unused] : w.jobs) {
                    const JobSpec j = *s.job(JobKey{k});
                    if (j.pin != Pin::free) continue;
                    const int32_t speed = place_of(s, k) ? w.providers[place_of(s, k)].speed : 0;
                    for (const auto& [p, m] : w.providers) {
                        if (m.speed <= speed || !m.accepting || m.reserve > j.value) continue;
                        if (std::find(j.barred.begin(), j.barred.end(), ProviderKey{p}) != j.barred.end()) continue;
                        int64_t cpus = m.cpus, mb = m.memory_mb;
                        for (const JobKey g : s.guests(ProviderKey{p})) {
                            const JobSpec o = *s.job(g);
                            if (o.pin == Pin::stay ||
                                Rank::of(o.value, o.arrival, g) < Rank::of(j.value, j.arrival, JobKey{k}))
                                cpus -= o.cpus, mb -= o.memory_mb;
                        }
                        ck_assert_msg(cpus < j.cpus || mb < j.memory_mb, "job %d envies those on %d",
                                      static_cast<int>(k), static_cast<int>(p));
                    }
                }
                for (const auto& [p, m] : w.providers) {  // room, unless pinned guests alone take more
                    int64_t cpus = m.cpus, mb = m.memory_mb;
                    bool free_guest = false;
                    for (const JobKey g : s.guests(ProviderKey{p})) {
                        cpus -= s.job(g)->cpus, mb -= s.job(g)->memory_mb;
                        free_guest |= s.job(g)->pin == Pin::free;
                    }
                    ck_assert(!free_guest || (cpus >= 0 && mb >= 0));
                }
            }
        }
}
END_TEST

START_TEST(decisions_never_cancel_and_a_second_solve_has_none) {
    for (const Shape& shape : shapes) {
        World w(4242, shape);
        Solver s;
        for (int step = 0; step < 300; ++step) {
            for (uint64_t i = w.rng.below(5); i > 0; --i) random_event(w, s);
            std::map<uint64_t, JobSpec> before;
            for (const auto& [k, spec] : w.jobs) before[k] = *s.job(JobKey{k});
            const auto span = s.solve(Nanos::from_s(w.clock_s));
            const std::vector<Change> changes(span.begin(), span.end());
            std::map<uint64_t, int> seen;
            for (const Change& c : changes) {
                ck_assert(++seen[c.job.n] == 1);
                const JobSpec& b = before[c.job.n];
                const JobSpec a = *s.job(c.job);
                ck_assert((b.state == JobState::running) ==
                          (c.kind == ChangeKind::move || c.kind == ChangeKind::freeze));
                ck_assert((b.state == JobState::waiting) == (c.kind == ChangeKind::start));
                ck_assert(c.kind == ChangeKind::freeze ? a.state == JobState::frozen : a.place == c.to);
                ck_assert(c.kind != ChangeKind::move || c.from != c.to);
            }
            ck_assert(s.solve(Nanos::from_s(w.clock_s)).empty());
        }
    }
}
END_TEST

// What the rules of migration still allow of envy: nobody who waits envies anybody but those who were placed within the
// minimum stay, and who runs forgoes less than a move would cost over the horizon.
START_TEST(envy_under_the_rules_of_migration_stays_within_the_stated_bounds) {
    int excused_by_stay = 0, excused_by_cost = 0;
    for (const int rule : {1, 2, 3})
        for (const Shape& shape : {shapes[1], shapes[3], shapes[4]})
            for (uint64_t seed = 1; seed <= 10; ++seed) {
                World w(seed * 53 + 1, shape);
                SolverOptions o;
                if (rule & 1) o.min_stay = Nanos::from_s(9);
                if (rule & 2) {
                    o.horizon = Nanos::from_s(2);
                    o.link_bytes_per_s = 5'000'000;
                    o.byte_cost_per_gb = Money{9'000};
                }
                Solver s;
                ck_assert(s.set_options(o).has_value());
                std::map<uint64_t, int64_t> placed;
                for (int step = 0; step < 120; ++step) {
                    random_event(w, s);
                    for (const Change& c : s.solve(Nanos::from_s(w.clock_s)))
                        if (c.kind != ChangeKind::freeze) placed[c.job.n] = w.clock_s;
                    const auto stays = [&](uint64_t k) {
                        return (rule & 1) && placed.contains(k) && placed[k] + 9 > w.clock_s;
                    };
                    int32_t top = 0;
                    for (const auto& [p, m] : w.providers)
                        if (m.accepting) top = std::max(top, m.speed);
                    for (const auto& [k, unused] : w.jobs) {
                        const JobSpec j = *s.job(JobKey{k});
                        const uint64_t at = place_of(s, k);
                        const int32_t speed = at ? w.providers[at].speed : 0;
                        for (const auto& [p, m] : w.providers) {
                            if (m.speed <= speed || !m.accepting || m.reserve > j.value) continue;
                            bool fits = true, fits_plain = true;
                            for (const bool plain : {false, true}) {
                                int64_t cpus = m.cpus, mb = m.memory_mb;
                                for (const JobKey g : s.guests(ProviderKey{p})) {
                                    const JobSpec x = *s.job(g);
                                    if ((plain || !stays(g.n)) &&
                                        Rank::of(j.value, j.arrival, JobKey{k}) < Rank::of(x.value, x.arrival, g))
                                        continue;
                                    cpus -= x.cpus, mb -= x.memory_mb;
                                }
                                (plain ? fits_plain : fits) = cpus >= j.cpus && mb >= j.memory_mb;
                            }
                            if (!fits_plain) continue;  // no envy
                            if (!fits || (at && stays(k))) {
                                ++excused_by_stay;
                                continue;
                            }
                            ck_assert_msg(at && (rule & 2), "rule %d seed %d step %d: job %d envies those on %d", rule,
                                          static_cast<int>(seed), step, static_cast<int>(k), static_cast<int>(p));
                            ++excused_by_cost;
                            const int64_t bytes = j.move_bytes >= 0 ? j.move_bytes : j.memory_mb * 1'000'000;
                            const MoveCost cost = move_cost(bytes, -1, o.link_bytes_per_s);
                            const double per_hour = static_cast<double>(j.value.micro) * j.cpus / top / 3600;
                            const double gain = per_hour * (m.speed - speed) * 2;
                            const double pause_s = std::ceil(static_cast<double>(cost.pause.ns) / 1e6) / 1e3;
                            const double money = std::ceil(static_cast<double>(cost.bytes) * 9'000 / 1e9);
                            ck_assert_msg(gain < per_hour * speed * pause_s + money,
                                          "rule %d seed %d step %d: job %d forgoes %f, a move to %d costs %f", rule,
                                          static_cast<int>(seed), step, static_cast<int>(k), gain, static_cast<int>(p),
                                          per_hour * speed * pause_s + money);
                        }
                    }
                }
            }
    ck_assert(excused_by_stay > 100 && excused_by_cost > 100);
}
END_TEST

START_TEST(equal_values_go_by_arrival_and_equal_arrivals_by_id) {
    for (uint64_t seed = 1; seed <= 50; ++seed) {
        Rng rng(seed);
        Solver s;
        struct One {
            int64_t value, arrival_s;
            uint64_t id;
        };
        std::vector<One> all;
        for (uint64_t id = 1; id <= 30; ++id) all.push_back({rng.between(1, 3), rng.between(0, 3), id});
        for (size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[rng.below(i)]);
        for (const One& j : all) {  // told in any order
            JobSpec spec;
            spec.value = Money::units(j.value);
            spec.arrival = Nanos::from_s(j.arrival_s);
            s.add_job(JobKey{j.id}, spec);
            if (rng.chance(0.3)) s.solve(Nanos{0});
        }
        for (uint64_t p = 1; p <= 20; ++p) {
            ProviderSpec m;
            m.speed = static_cast<int32_t>(1000 - 10 * p);  // the faster the lower the number
            s.add_provider(ProviderKey{p}, m);
            if (rng.chance(0.3)) s.solve(Nanos{0});
        }
        s.solve(Nanos{0});
        std::sort(all.begin(), all.end(), [](const One& a, const One& b) {
            if (a.value != b.value) return a.value > b.value;
            return a.arrival_s != b.arrival_s ? a.arrival_s < b.arrival_s : a.id < b.id;
        });
        for (size_t i = 0; i < all.size(); ++i) ck_assert_uint_eq(place_of(s, all[i].id), i < 20 ? i + 1 : 0);
    }
}
END_TEST

START_TEST(where_each_machine_has_its_own_speed_an_arrival_moves_everybody_below_it) {
    Solver s;
    for (uint64_t p = 1; p <= 50; ++p) {
        ProviderSpec m;
        m.speed = static_cast<int32_t>(p);
        s.add_provider(ProviderKey{p}, m);
    }
    const auto job = [](int64_t value) {
        JobSpec j;
        j.value = Money::units(value);
        return j;
    };
    for (uint64_t j = 1; j <= 60; ++j) s.add_job(JobKey{j}, job(static_cast<int64_t>(10 * j)));
    s.solve(Nanos{0});
    s.add_job(JobKey{61}, job(405));  // 20 rank above it, 30 of those below it run
    ck_assert_uint_eq(s.solve(Nanos::from_s(1)).size(), 31);
    SolverOptions o;
    o.moves_max = 5;  // who would rather have fewer moves than no envy says so
    ck_assert(s.set_options(o).has_value());
    s.remove_job(JobKey{60});
    ck_assert_uint_eq(s.solve(Nanos::from_s(2)).size(), 6);  // five moves, and a start where the last of them was
}
END_TEST

// Every placement that gives each job the class that it has, by trying all; the least bytes of running jobs that move,
// and then of frozen ones that are thawed elsewhere than they lie.
std::pair<int64_t, int64_t> fewest_bytes(const std::map<uint64_t, uint64_t>& result,
                                         const std::map<uint64_t, JobSpec>& before,
                                         const std::map<uint64_t, ProviderSpec>& providers) {
    std::vector<uint64_t> placed;
    for (const auto& [k, p] : result)
        if (p) placed.push_back(k);
    std::map<uint64_t, int> room;
    for (const auto& [p, m] : providers) room[p] = m.cpus;
    std::pair<int64_t, int64_t> best{INT64_MAX, INT64_MAX};
    auto place = [&](auto&& self, size_t i, std::pair<int64_t, int64_t> bytes) -> void {
        if (bytes >= best) return;
        if (i == placed.size()) {
            best = bytes;
            return;
        }
        const JobSpec& b = before.at(placed[i]);
        const ProviderSpec& had = providers.at(result.at(placed[i]));
        for (const auto& [p, m] : providers) {
            if (room[p] == 0 || !m.accepting || m.speed != had.speed || m.reserve != had.reserve) continue;
            --room[p];
            auto more = bytes;
            if (b.place.n != p && b.state != JobState::waiting)
                (b.state == JobState::running ? more.first : more.second) += b.move_bytes;
            self(self, i + 1, more);
            ++room[p];
        }
    };
    place(place, 0, {0, 0});
    return best;
}

START_TEST(no_equal_allocation_moves_fewer_bytes) {
    Shape shape;
    shape.jobs_max = 9;
    shape.providers_max = 4;
    shape.cpus_machine = 3;
    shape.speeds = 2;
    for (uint64_t seed = 1; seed <= 60; ++seed) {
        World w(seed * 131, shape);
        Solver s;
        for (int step = 0; step < 40; ++step) {
            for (uint64_t i = w.rng.below(4); i > 0; --i) random_event(w, s);
            std::map<uint64_t, JobSpec> before;
            std::map<uint64_t, uint64_t> result;
            for (const auto& [k, spec] : w.jobs) before[k] = *s.job(JobKey{k});
            s.solve(Nanos::from_s(w.clock_s));
            std::pair<int64_t, int64_t> moved;
            for (const auto& [k, b] : before) {
                result[k] = place_of(s, k);
                if (result[k] && b.state != JobState::waiting && b.place.n != result[k])
                    (b.state == JobState::running ? moved.first : moved.second) += b.move_bytes;
            }
            const auto best = fewest_bytes(result, before, w.providers);
            ck_assert_msg(moved == best, "seed %d step %d moves %ld bytes and thaws %ld, %ld and %ld would do",
                          static_cast<int>(seed), step, static_cast<long>(moved.first), static_cast<long>(moved.second),
                          static_cast<long>(best.first), static_cast<long>(best.second));
        }
    }
}
END_TEST

// Two allocators that see the same; one repairs, the other goes through everybody.
struct Pair {
    Allocator a, b;
    template <class F>
    void both(F&& f) {
        f(a), f(b);
    }
    void add_job(JobKey k, const JobSpec& s) {
        both([&](Allocator& x) { x.add_job(k, s); });
    }
    void change_job(JobKey k, const JobSpec& s) {
        both([&](Allocator& x) { x.change_job(x.find_job(k), s); });
    }
    void change_value(JobKey k, Money v) {
        both([&](Allocator& x) { x.change_value(x.find_job(k), v); });
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
    std::optional<JobSpec> job(JobKey k) const {
        const uint32_t i = a.find_job(k);
        const auto& j = a.jobs()[i];
        JobSpec s;
        s.value = j.value, s.cpus = j.cpus, s.memory_mb = j.memory_mb, s.arrival = j.arrival(), s.state = j.state;
        s.place = a.place_of(i), s.pin = j.pin, s.move_bytes = a.details(i).move_bytes;
        return s;
    }
};

bool same(const Change& x, const Change& y) {
    return x.job == y.job && x.kind == y.kind && x.from == y.from && x.to == y.to && x.cause == y.cause &&
           x.other == y.other;
}

START_TEST(incremental_equals_full_under_all_rules) {
    const Rules rules[] = {
        {},
        {Nanos::from_s(60), 100'000'000, {}, {}, 0, Nanos::from_s(60)},
        {Nanos::from_s(5), 1'000'000, Money::units(3), Nanos::from_s(4), 0, Nanos::from_s(60)},
        {{}, 100'000'000, {}, Nanos::from_s(7), 2, Nanos::from_s(20)},
        {Nanos::from_s(20), 10'000'000, {}, {}, 1, Nanos::from_s(9)},
    };
    for (const Rules& r : rules)
        for (const Shape& base : shapes)
            for (uint64_t seed = 1; seed <= 6; ++seed) {
                Shape shape = base;
                shape.jobs_max *= 4;
                shape.providers_max *= 3;
                World w(seed * 7919, shape);
                Pair t;
                t.both([&](Allocator& x) { x.set_rules(r); });
                for (int step = 0; step < 250; ++step) {
                    for (uint64_t i = 1 + w.rng.below(3); i > 0; --i) random_event(w, t);
                    t.a.solve(Nanos::from_s(w.clock_s));
                    t.b.solve_all(Nanos::from_s(w.clock_s));
                    ck_assert_msg(std::equal(t.a.changes().begin(), t.a.changes().end(), t.b.changes().begin(),
                                             t.b.changes().end(), same),
                                  "rules %d shape %d seed %d step %d", static_cast<int>(&r - rules),
                                  static_cast<int>(&base - shapes), static_cast<int>(seed), step);
                    ck_assert(t.a.next_wake() == t.b.next_wake());
                }
            }
}
END_TEST

}  // namespace

UNIT_SUITE_LONG(allocator, 120, solve_equals_the_naive_greedy_after_every_event,
                nobody_has_justified_envy_and_no_provider_is_below_its_reserve,
                envy_under_the_rules_of_migration_stays_within_the_stated_bounds,
                equal_values_go_by_arrival_and_equal_arrivals_by_id,
                where_each_machine_has_its_own_speed_an_arrival_moves_everybody_below_it,
                decisions_never_cancel_and_a_second_solve_has_none, no_equal_allocation_moves_fewer_bytes,
                incremental_equals_full_under_all_rules);
