// SPDX-License-Identifier: GPL-2.0-or-later
// easy and conservative as the solver and a market of jobs with limits run them. That the
// simulator, which runs the same code, starts each job when the definitions say is in
// tests/tools/test_marketsim_solvers.py.
#include "kernel/base/rng.hpp"
#include "tests/unit/allocator_world.hpp"
#include "tests/unit/market_world.hpp"

using namespace souk;
using namespace souk::market;

namespace {

constexpr Nanos s(int64_t v) { return Nanos::from_s(v); }

Solver ahead_solver(const char* name) {
    Solver solver;
    SolverOptions o;
    o.algorithm = name;
    ck_assert(solver.set_options(o).has_value());
    return solver;
}

// run_s: it takes so long on a standard machine; below 0: that is not known.
JobDemand job_of(int64_t arrival_s, int32_t cpus, int64_t run_s) {
    JobDemand j;
    j.value = Money::units(5);
    j.cpus = cpus;
    j.arrival = s(arrival_s);
    JobAhead ahead;
    if (run_s >= 0) ahead.rest.work = s(run_s);
    ahead.rest_from = s(arrival_s);
    j.ahead = ahead;
    return j;
}

ProviderSpec of_cpus(int32_t cpus) {
    ProviderSpec p;
    p.cpus = cpus;
    p.memory_mb = 1000;
    return p;
}

bool runs(const Solver& solver, uint64_t job) { return solver.place(JobKey{job}).n != 0; }

}  // namespace

START_TEST(a_later_job_starts_where_it_delays_no_reservation) {
    for (const char* name : {"easy", "conservative"}) {
        Solver solver = ahead_solver(name);
        solver.add_provider(ProviderKey{1}, of_cpus(4));
        solver.add_job(JobKey{1}, job_of(0, 3, 100));
        solver.add_job(JobKey{2}, job_of(1, 4, 50));  // from 100 on
        solver.add_job(JobKey{3}, job_of(2, 1, 99));  // until 99
        solver.solve(s(0));
        ck_assert(runs(solver, 1) && !runs(solver, 2) && runs(solver, 3));
        ck_assert(solver.price(JobKey{3}) == Money{});
        ck_assert(!solver.winning_bid(JobKey{2}));
        solver.remove_job(JobKey{3});
        for (const int64_t run_s : {101L, -1L}) {  // what is not known counts as a day
            solver.add_job(JobKey{4}, job_of(3, 1, run_s));
            solver.solve(s(0));
            ck_assert(!runs(solver, 4));
            solver.remove_job(JobKey{4});
        }
        // The first is late: it is taken to need as long again.
        solver.add_job(JobKey{5}, job_of(120, 1, 18));
        solver.solve(s(120));
        ck_assert(runs(solver, 5) && !runs(solver, 2));
        solver.remove_job(JobKey{1});
        solver.solve(s(130));
        ck_assert(!runs(solver, 2));
        solver.remove_job(JobKey{5});
        solver.solve(s(138));
        ck_assert(runs(solver, 2));
    }
}
END_TEST

START_TEST(only_conservative_reserves_for_more_than_the_first) {
    for (const bool conservative : {false, true}) {
        Solver solver = ahead_solver(conservative ? "conservative" : "easy");
        solver.add_provider(ProviderKey{1}, of_cpus(4));
        solver.add_job(JobKey{1}, job_of(0, 3, 100));
        solver.add_job(JobKey{2}, job_of(1, 3, 50));   // from 100 to 150
        solver.add_job(JobKey{3}, job_of(2, 4, 50));   // from 150 to 200
        solver.add_job(JobKey{4}, job_of(3, 1, 300));  // fits beside the second alone
        solver.solve(s(0));
        ck_assert(runs(solver, 4) == !conservative && !runs(solver, 2) && !runs(solver, 3));
    }
}
END_TEST

START_TEST(a_place_that_is_sold_ahead_is_kept_free) {
    Solver solver = ahead_solver("easy");
    solver.add_provider(ProviderKey{1}, of_cpus(2));
    JobDemand sold = job_of(0, 2, 50);
    sold.pin = Pin::frozen;
    sold.ahead->at = ProviderKey{1};
    sold.ahead->from = s(100);
    sold.ahead->to = s(150);
    solver.add_job(JobKey{1}, sold);
    solver.add_job(JobKey{2}, job_of(1, 1, 200));
    solver.add_job(JobKey{3}, job_of(2, 1, 90));
    solver.solve(s(0));
    ck_assert(!runs(solver, 2) && runs(solver, 3));
    solver.remove_job(JobKey{1});
    solver.solve(s(1));
    ck_assert(runs(solver, 2));
}
END_TEST

START_TEST(a_market_plans_with_limits_and_with_what_programs_took) {
    World w;
    w.add_node("n1", 100, 0, 4);
    w.run_for(s(4));
    ck_assert(w.market->set_option("solver", "easy", "", 0, w.now).has_value());
    const auto limited = [&](int32_t cpus, int64_t limit_s, int64_t work_s) {
        const JobId id = w.submit("n1", 5, s(work_s), cpus);
        if (limit_s > 0) w.jobs[id].report.terms.limits.edit().run = s(limit_s);
        w.tell(w.jobs[id]);
        w.run_for(s(1));
        return id;
    };
    const JobId first = limited(3, 600, 300), wide = limited(4, 600, 60),
                longer = limited(1, 900, 900), shorter = limited(1, 300, 100),
                unknown = limited(1, 0, 50);
    w.run_for(s(10));
    ck_assert_text(w.where(first), "n1");
    ck_assert_text(w.where(shorter), "n1");
    for (const JobId& id : {wide, longer, unknown}) ck_assert(w.phase(id) == JobPhase::waiting);
    w.run_for(s(120));  // the shorter one has ended, and nothing fits before the wide one's time
    for (const JobId& id : {wide, longer, unknown}) ck_assert(w.phase(id) == JobPhase::waiting);
    w.run_for(s(200));  // the first has ended before its limit
    ck_assert_text(w.where(wide), "n1");
    w.run_for(s(70));
    ck_assert_text(w.where(longer), "n1");
    ck_assert(w.market->set_option("solver", "default", "", 0, w.now).has_value());
    ck_assert_text(w.market->audit(), "");
}
END_TEST

UNIT_SUITE(backfilling, a_later_job_starts_where_it_delays_no_reservation,
           only_conservative_reserves_for_more_than_the_first,
           a_place_that_is_sold_ahead_is_kept_free,
           a_market_plans_with_limits_and_with_what_programs_took);
