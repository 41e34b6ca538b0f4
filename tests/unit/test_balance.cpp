// SPDX-License-Identifier: GPL-2.0-or-later
// balance against its own definition, worked out here from what the Solver tells alone.
#include <vector>

#include "tests/unit/allocator_world.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using namespace souk::unit;

namespace {

Solver balance() {
    Solver s;
    SolverOptions o;
    o.algorithm = "balance";
    ck_assert(s.set_options(o).has_value());
    return s;
}

JobDemand job(int64_t arrival_s, int64_t value = 5, int32_t cpus = 1) {
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

// The room that is left on each machine, computed from the jobs that the Solver says are there.
struct Left {
    int64_t cpus = 0, mb = 0;
};

std::map<uint64_t, Left> left_of(const AllocatorWorld& w, const Solver& s) {
    std::map<uint64_t, Left> left;
    for (const auto& [p, spec] : w.providers) left[p] = {spec.cpus, spec.memory_mb};
    for (const auto& [j, spec] : w.jobs) {
        const JobDemand now = *s.job(JobKey{j});
        if (now.state != JobState::running) continue;
        left[now.place.n].cpus -= now.cpus;
        left[now.place.n].mb -= now.memory_mb;
    }
    return left;
}

double load(const ProviderSpec& p, double used) { return used / (p.cpus * 1.0 * p.speed); }

bool may(const JobDemand& j, uint64_t p, const ProviderSpec& spec, const Left& left) {
    bool barred = false;
    for (const ProviderKey b : j.barred) barred |= b.n == p;
    return spec.accepting && spec.reserve <= j.value && !barred && left.cpus >= j.cpus &&
           left.mb >= j.memory_mb;
}

void check(const AllocatorWorld& w, const Solver& s) {
    const auto left = left_of(w, s);
    for (const auto& [j, spec] : w.jobs) {
        const JobDemand now = *s.job(JobKey{j});
        if (now.pin != Pin::free) continue;
        const bool runs = now.state == JobState::running;
        if (runs) ck_assert(s.price(JobKey{j}) == w.providers.at(now.place.n).reserve);
        for (const auto& [p, there] : w.providers) {
            if (p == now.place.n && runs) continue;
            if (!may(now, p, there, left.at(p))) continue;
            ck_assert_msg(
                runs, "job %d (%s, %d cpus, %d MB, on %d) waits though %d has room for %d, %d MB",
                int(j), to_string(now.state), now.cpus, int(now.memory_mb), int(now.place.n),
                int(p), int(left.at(p).cpus), int(left.at(p).mb));
            const ProviderSpec& here = w.providers.at(now.place.n);
            const double is = load(here, double(here.cpus - left.at(now.place.n).cpus));
            const double would = load(there, double(there.cpus - left.at(p).cpus + now.cpus));
            ck_assert_msg(would >= is - 1e-12, "job %d would find a lower load on %d", int(j),
                          int(p));
        }
    }
}

}  // namespace

START_TEST(machines_fill_by_speed_and_level_out_when_somebody_ends) {
    Solver s = balance();
    s.add_provider(ProviderKey{1}, machine(100, 2));
    s.add_provider(ProviderKey{2}, machine(50, 2));
    for (uint64_t j = 1; j <= 3; ++j) s.add_job(JobKey{j}, job(static_cast<int64_t>(j)));
    s.solve(Nanos::from_s(10));
    // Loads of 0.5 and 1 per cent: two on the fast one, then one on the slow one.
    ck_assert(s.place(JobKey{1}).n == 1 && s.place(JobKey{2}).n == 1);
    ck_assert(s.place(JobKey{3}).n == 2);
    s.remove_job(JobKey{1});
    s.remove_job(JobKey{2});
    const auto changes = s.solve(Nanos::from_s(20));
    ck_assert(changes.size() == 1 && changes[0].kind == ChangeKind::move);
    ck_assert(changes[0].cause == market::Cause::balanced && changes[0].to.n == 1);
    ck_assert(s.solve(Nanos::from_s(21)).empty());
}
END_TEST

START_TEST(nobody_is_displaced_and_who_came_first_is_served_first) {
    Solver s = balance();
    s.add_provider(ProviderKey{1}, machine(100, 1));
    s.add_job(JobKey{1}, job(1, 2));
    s.solve(Nanos::from_s(1));
    s.add_job(JobKey{2}, job(2, 3));
    s.add_job(JobKey{3}, job(3, 1000));
    ck_assert(s.solve(Nanos::from_s(3)).empty());
    ck_assert(!s.winning_bid(JobKey{3}) && !s.next_price(ProviderKey{1}));
    s.remove_job(JobKey{1});
    s.solve(Nanos::from_s(4));
    ck_assert(s.place(JobKey{2}).n == 1 && s.place(JobKey{3}).n == 0);
    ck_assert(s.price(JobKey{2}) == Money::units(1));
}
END_TEST

START_TEST(a_reserve_and_a_stay_hold) {
    Solver s = balance();
    SolverOptions o = s.options();
    o.min_stay = Nanos::from_s(60);
    ck_assert(s.set_options(o).has_value());
    s.add_provider(ProviderKey{1}, machine(50, 1));
    s.add_provider(ProviderKey{2}, machine(100, 1, 9));
    s.add_job(JobKey{1}, job(1, 5));
    s.solve(Nanos::from_s(1));
    ck_assert_msg(s.place(JobKey{1}).n == 1, "the fast one asks more than the job is worth");
    s.change_provider(ProviderKey{2}, machine(100, 1, 4));
    ck_assert(s.solve(Nanos::from_s(30)).empty());  // it was placed 29 s ago
    s.solve(Nanos::from_s(62));
    ck_assert(s.place(JobKey{1}).n == 2);
}
END_TEST

START_TEST(random_markets_are_level_and_leave_no_room_that_somebody_could_use) {
    for (const Shape& shape : shapes)
        for (uint64_t seed = 1; seed <= 40; ++seed) {
            AllocatorWorld w(seed, shape);
            Solver s = balance();
            for (int i = 0; i < 120; ++i) {
                random_event(w, s);
                std::map<uint64_t, ProviderKey> ran;
                for (const auto& [j, spec] : w.jobs)
                    if (s.job(JobKey{j})->state == JobState::running) ran[j] = s.place(JobKey{j});
                for (const Change& c : s.solve(Nanos::from_s(w.clock_s)))
                    ck_assert_msg(
                        c.kind != ChangeKind::freeze || c.cause != market::Cause::balanced,
                        "a job was frozen for the balance");
                check(w, s);
                ck_assert(s.solve(Nanos::from_s(w.clock_s)).empty());
            }
        }
}
END_TEST

UNIT_SUITE(balance, machines_fill_by_speed_and_level_out_when_somebody_ends,
           nobody_is_displaced_and_who_came_first_is_served_first, a_reserve_and_a_stay_hold,
           random_markets_are_level_and_leave_no_room_that_somebody_could_use);
