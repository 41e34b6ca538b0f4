// SPDX-License-Identifier: GPL-2.0-or-later
// fcfs, fpfs and bounded_overtaking against a queue that is worked out here, from the words of
// their definition and what the Solver tells alone.
#include <tuple>
#include <vector>

#include "tests/unit/allocator_world.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using namespace souk::unit;

namespace {

struct Policy {
    const char* name;
    int passes_max;  // below 0: any number
};
constexpr Policy policies[] = {{"fcfs", 0}, {"fpfs", -1}, {"bounded_overtaking", 20}};

Solver solver(const char* name) {
    Solver s;
    SolverOptions o;
    o.algorithm = name;
    ck_assert(s.set_options(o).has_value());
    return s;
}

JobDemand job(int64_t arrival_s, int32_t cpus = 1, int64_t value = 5) {
    JobDemand j;
    j.value = Money::units(value);
    j.cpus = cpus;
    j.arrival = Nanos::from_s(arrival_s);
    return j;
}

ProviderSpec machine(int32_t speed, int32_t cpus, int64_t reserve = 1) {
    ProviderSpec p;
    p.speed = speed;
    p.cpus = cpus;
    p.memory_mb = 1000;
    p.reserve = Money::units(reserve);
    return p;
}

// Lists where everybody is, as the Solver says; 0: nowhere.
std::map<uint64_t, uint64_t> places(const AllocatorWorld& w, const Solver& s) {
    std::map<uint64_t, uint64_t> all;
    for (const auto& [j, spec] : w.jobs) all[j] = s.standing(JobKey{j}).slot.n;
    return all;
}

bool may(const JobDemand& j, uint64_t p, const ProviderSpec& spec) {
    return spec.accepting && spec.reserve <= j.value &&
           std::find(j.barred.begin(), j.barred.end(), ProviderKey{p}) == j.barred.end();
}

// Reckons who starts where, if those of `there` stay.
std::map<uint64_t, uint64_t> starts(const AllocatorWorld& w, const Solver& s,
                                    const std::map<uint64_t, uint64_t>& there, int passes_max,
                                    std::map<uint64_t, int>& passed) {
    std::map<uint64_t, std::pair<int64_t, int64_t>> free;
    for (const auto& [p, spec] : w.providers) free[p] = {spec.cpus, spec.memory_mb};
    std::vector<std::pair<int64_t, uint64_t>> queue;
    for (const auto& [j, spec] : w.jobs) {
        const JobDemand now = *s.job(JobKey{j});
        if (there.contains(j)) {
            free[there.at(j)].first -= now.cpus;
            free[there.at(j)].second -= now.memory_mb;
            passed.erase(j);
            continue;
        }
        const bool could = now.pin == Pin::free;
        bool any = false;
        for (const auto& [p, of] : w.providers)
            any |= may(now, p, of) && of.cpus >= now.cpus && of.memory_mb >= now.memory_mb;
        if (could && any) queue.emplace_back(now.arrival.ns, j);
    }
    std::sort(queue.begin(), queue.end());
    std::map<uint64_t, uint64_t> out;
    std::vector<uint64_t> waits;
    for (const auto& [arrival, j] : queue) {
        const JobDemand now = *s.job(JobKey{j});
        uint64_t best = 0;
        for (const auto& [p, of] : w.providers) {
            if (!may(now, p, of) || free[p].first < now.cpus || free[p].second < now.memory_mb)
                continue;
            const auto rank = [&](uint64_t k) {
                const ProviderSpec& m = w.providers.at(k);
                return std::tuple(-m.speed, m.reserve, k);
            };
            if (best == 0 || rank(p) < rank(best)) best = p;
        }
        if (best != 0) {
            out[j] = best;
            free[best].first -= now.cpus;
            free[best].second -= now.memory_mb;
            for (const uint64_t k : waits) ++passed[k];
            passed.erase(j);
        } else {
            waits.push_back(j);
            if (passes_max >= 0 && passed[j] >= passes_max) break;
        }
    }
    return out;
}

}  // namespace

START_TEST(a_large_job_stops_the_queue_is_passed_or_is_passed_so_often) {
    for (const Policy& policy : policies) {
        Solver s = solver(policy.name);
        s.add_provider(ProviderKey{1}, machine(100, 4));
        s.add_job(JobKey{1}, job(1, 2));
        s.solve(Nanos::from_s(1));
        s.add_job(JobKey{2}, job(2, 4));
        s.solve(Nanos::from_s(2));
        int passed = 0;
        for (uint64_t k = 3; k < 40; ++k) {
            s.add_job(JobKey{k}, job(static_cast<int64_t>(k), 1));
            s.solve(Nanos::from_s(static_cast<int64_t>(k)));
            if (s.place(JobKey{k}).n == 1) ++passed;
            ck_assert(s.place(JobKey{1}).n == 1 && s.place(JobKey{2}).n == 0);
            if (s.place(JobKey{k}).n == 1) ck_assert(s.price(JobKey{k}) == Money::units(1));
            s.remove_job(JobKey{k});
        }
        const int expected = policy.passes_max < 0 ? 37 : policy.passes_max;
        ck_assert_msg(passed == expected, "%s: it was passed %d times", policy.name, passed);
        s.remove_job(JobKey{1});
        s.solve(Nanos::from_s(50));
        ck_assert(s.place(JobKey{2}).n == 1);
    }
}
END_TEST

START_TEST(what_no_machine_could_hold_stops_nobody_and_a_bid_buys_no_turn) {
    Solver s = solver("fcfs");
    s.add_provider(ProviderKey{1}, machine(100, 2, 3));
    s.add_job(JobKey{1}, job(1, 8));
    s.add_job(JobKey{2}, job(2, 1, 2));  // below the reserve
    s.add_job(JobKey{3}, job(3, 1));
    s.solve(Nanos::from_s(3));
    ck_assert(s.place(JobKey{1}).n == 0 && s.place(JobKey{2}).n == 0);
    ck_assert(s.place(JobKey{3}).n == 1);
    s.add_job(JobKey{4}, job(4, 2));
    s.add_job(JobKey{5}, job(5, 1, 1000));
    ck_assert(s.solve(Nanos::from_s(5)).empty());
    ck_assert(!s.winning_bid(JobKey{5}));
    // A switch of a running market leaves everybody where he is.
    SolverOptions o = s.options();
    o.algorithm = "fpfs";
    ck_assert(s.set_options(o).has_value());
    s.solve(Nanos::from_s(6));
    ck_assert(s.place(JobKey{3}).n == 1 && s.place(JobKey{5}).n == 1 && s.place(JobKey{4}).n == 0);
}
END_TEST

START_TEST(random_markets_start_whom_the_queue_says_and_move_nobody) {
    for (const Policy& policy : policies)
        for (const Shape& shape : shapes) {
            if (shape.pins || shape.waits) continue;
            for (uint64_t seed = 1; seed <= 25; ++seed) {
                AllocatorWorld w(seed, shape);
                Solver s = solver(policy.name);
                std::map<uint64_t, int> passed;
                for (int i = 0; i < 100; ++i) {
                    const auto before = w.providers;
                    const auto was = places(w, s);
                    std::map<uint64_t, JobDemand> had;
                    for (const auto& [j, spec] : w.jobs) had[j] = *s.job(JobKey{j});
                    random_event(w, s);
                    std::map<uint64_t, uint64_t> told;  // a move that failed left it there
                    for (const auto& [j, spec] : w.jobs)
                        if (const JobDemand now = *s.job(JobKey{j}); now.state == JobState::running)
                            told[j] = now.place.n;
                    s.solve(Nanos::from_s(w.clock_s));
                    const auto is = places(w, s);
                    std::map<uint64_t, uint64_t> stay;
                    for (const auto& [j, at] : is)
                        if (at != 0 && ((was.contains(j) && was.at(j) == at) ||
                                        (told.contains(j) && told.at(j) == at)))
                            stay[j] = at;
                    auto expected = starts(w, s, stay, policy.passes_max, passed);
                    for (const auto& [j, at] : is) {
                        const uint64_t wanted = stay.contains(j) ? at : expected[j];
                        ck_assert_msg(at == wanted,
                                      "%s, seed %lu, step %d: job %lu on %lu, not %lu", policy.name,
                                      seed, i, j, at, wanted);
                    }
                    // Nobody loses a place by what comes to the queue: only if his machine changes,
                    // or somebody who is there.
                    const auto same = [&](uint64_t p) {
                        if (!w.providers.contains(p)) return false;
                        for (const auto& [j, at] : told)
                            if (at == p && (!was.contains(j) || was.at(j) != p)) return false;
                        const ProviderSpec &a = before.at(p), &b = w.providers.at(p);
                        if (std::tie(a.cpus, a.memory_mb, a.speed, a.reserve, a.accepting) !=
                            std::tie(b.cpus, b.memory_mb, b.speed, b.reserve, b.accepting))
                            return false;
                        return std::all_of(was.begin(), was.end(), [&](const auto& one) {
                            const auto now = s.job(JobKey{one.first});
                            if (one.second != p || !now) return true;
                            const JobDemand& old = had.at(one.first);
                            return old.cpus == now->cpus && old.memory_mb == now->memory_mb &&
                                   old.value == now->value && old.barred == now->barred &&
                                   now->place.n == p;
                        });
                    };
                    for (const auto& [j, at] : was) {
                        if (at == 0 || !is.contains(j) || !same(at)) continue;
                        ck_assert_msg(is.at(j) == at, "%s, seed %lu: job %lu lost its place",
                                      policy.name, seed, j);
                    }
                }
            }
        }
}
END_TEST

UNIT_SUITE(first_come, a_large_job_stops_the_queue_is_passed_or_is_passed_so_often,
           what_no_machine_could_hold_stops_nobody_and_a_bid_buys_no_turn,
           random_markets_start_whom_the_queue_says_and_move_nobody);
