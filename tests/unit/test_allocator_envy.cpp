// SPDX-License-Identifier: GPL-2.0-or-later
// The allocator decides which job gets which place: without justified envy, also with equal values
// and machines of different speeds.
#include <algorithm>
#include <cmath>
#include <vector>

#include "market/core/allocator.hpp"
#include "tests/unit/allocator_world.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {

START_TEST(nobody_has_justified_envy_and_no_provider_is_below_its_reserve) {
    for (const Shape& shape : shapes)
        for (uint64_t seed = 1; seed <= 20; ++seed) {
            AllocatorWorld w(seed * 31 + 7, shape);
            Solver s;
            for (int step = 0; step < 100; ++step) {
                for (uint64_t i = w.rng.below(4); i > 0; --i) random_event(w, s);
                s.solve(Nanos::from_s(w.clock_s));
                std::map<uint64_t, std::pair<int64_t, int64_t>> used;
                for (const auto& [k, spec] : w.jobs) {
                    const JobDemand j = *s.job(JobKey{k});
                    const uint64_t p = place_of(s, k);
                    if (!p || j.pin != Pin::free) continue;
                    ck_assert(w.providers.count(p) && w.providers[p].accepting &&
                              w.providers[p].reserve <= j.value);
                }
                // Envy by its definition: k would fit on a faster machine once all below k's rank
                // are taken off.
                for (const auto& [k, unused] : w.jobs) {
                    const JobDemand j = *s.job(JobKey{k});
                    if (j.pin != Pin::free) continue;
                    const int32_t speed = place_of(s, k) ? w.providers[place_of(s, k)].speed : 0;
                    for (const auto& [p, m] : w.providers) {
                        if (m.speed <= speed || !m.accepting || m.reserve > j.value) continue;
                        if (std::find(j.barred.begin(), j.barred.end(), ProviderKey{p}) !=
                            j.barred.end())
                            continue;
                        int64_t cpus = m.cpus, mb = m.memory_mb;
                        for (const JobKey g : s.guests(ProviderKey{p})) {
                            const JobDemand o = *s.job(g);
                            if (o.pin == Pin::stay || rank_in_words(o, g.n) < rank_in_words(j, k))
                                cpus -= o.cpus, mb -= o.memory_mb;
                        }
                        ck_assert_msg(cpus < j.cpus || mb < j.memory_mb,
                                      "job %d envies those on %d", static_cast<int>(k),
                                      static_cast<int>(p));
                    }
                }
                // room, unless pinned guests alone take more
                for (const auto& [p, m] : w.providers) {
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

// The rules of migration allow some envy. A waiting job envies nobody but jobs that were placed
// within the minimum stay, and a running job forgoes less than a move would cost over the horizon.
// Long: one search, with what it counts.
START_TEST(envy_under_the_rules_of_migration_stays_within_the_stated_bounds) {
    int excused_by_stay = 0, excused_by_cost = 0;
    for (const int rule : {1, 2, 3})
        for (const Shape& shape : {shapes[1], shapes[3], shapes[4]})
            for (uint64_t seed = 1; seed <= 10; ++seed) {
                AllocatorWorld w(seed * 53 + 1, shape);
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
                        const JobDemand j = *s.job(JobKey{k});
                        const uint64_t at = place_of(s, k);
                        const int32_t speed = at ? w.providers[at].speed : 0;
                        for (const auto& [p, m] : w.providers) {
                            if (m.speed <= speed || !m.accepting || m.reserve > j.value) continue;
                            bool fits = true, fits_plain = true;
                            for (const bool plain : {false, true}) {
                                int64_t cpus = m.cpus, mb = m.memory_mb;
                                for (const JobKey g : s.guests(ProviderKey{p})) {
                                    const JobDemand x = *s.job(g);
                                    if ((plain || !stays(g.n)) &&
                                        rank_in_words(j, k) < rank_in_words(x, g.n))
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
                            ck_assert_msg(at && (rule & 2),
                                          "rule %d seed %d step %d: job %d envies those on %d",
                                          rule, static_cast<int>(seed), step, static_cast<int>(k),
                                          static_cast<int>(p));
                            ++excused_by_cost;
                            const int64_t bytes =
                                j.move_bytes >= 0 ? j.move_bytes : j.memory_mb * 1'000'000;
                            const MoveCost cost = move_cost(bytes, -1, o.link_bytes_per_s);
                            const double per_hour =
                                static_cast<double>(j.value.micro) * j.cpus / top / 3600;
                            const double gain = per_hour * (m.speed - speed) * 2;
                            const double pause_s =
                                std::ceil(static_cast<double>(cost.pause.ns) / 1e6) / 1e3;
                            const double money =
                                std::ceil(static_cast<double>(cost.bytes) * 9'000 / 1e9);
                            ck_assert_msg(
                                gain < per_hour * speed * pause_s + money,
                                "rule %d seed %d step %d: job %d forgoes %f, a move to %d costs %f",
                                rule, static_cast<int>(seed), step, static_cast<int>(k), gain,
                                static_cast<int>(p), per_hour * speed * pause_s + money);
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
        for (uint64_t id = 1; id <= 30; ++id)
            all.push_back({rng.between(1, 3), rng.between(0, 3), id});
        for (size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[rng.below(i)]);
        for (const One& j : all) {  // told in any order
            JobDemand spec;
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
        for (size_t i = 0; i < all.size(); ++i)
            ck_assert_uint_eq(place_of(s, all[i].id), i < 20 ? i + 1 : 0);
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
        JobDemand j;
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
    // five moves, and a start where the last of them was
    ck_assert_uint_eq(s.solve(Nanos::from_s(2)).size(), 6);
}
END_TEST

}  // namespace

UNIT_SUITE_LONG(allocator_envy, 120, nobody_has_justified_envy_and_no_provider_is_below_its_reserve,
                envy_under_the_rules_of_migration_stays_within_the_stated_bounds,
                equal_values_go_by_arrival_and_equal_arrivals_by_id,
                where_each_machine_has_its_own_speed_an_arrival_moves_everybody_below_it);

}  // namespace souk::unit
