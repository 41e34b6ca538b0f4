// SPDX-License-Identifier: GPL-2.0-or-later
// The market's solver over jobs of several components in the simulator.
#include "market/sim/coallocation_solver.hpp"
#include "tests/unit/coallocation_world.hpp"

using namespace souk;
using namespace souk::unit::coallocation;

namespace {

World solver_world(Rng& rng) {
    World world;
    std::vector<int64_t> sizes;
    for (int64_t i = rng.between(1, 4); i > 0; --i) sizes.push_back(rng.between(3, 9));
    world.clusters = clusters_of(sizes);
    const auto near = make_near_placement(world.clusters);
    fill_market(world, rng, [&](const Job& job) {
        return anywhere(job) && job.kind != Kind::flexible && near->place(job, sizes);
    });
    return world;
}

START_TEST(under_the_solver_a_gang_holds_all_its_places_or_none_and_does_all_its_work) {
    size_t moves = 0, freezes = 0;
    for (uint64_t seed = 1; seed <= 200; ++seed) {
        Rng rng(seed);
        const World world = solver_world(rng);
        const auto policy = make_solver_policy(world, 200);
        ck_assert(policy.has_value());
        const Result<Outcome> o = run(world, **policy);
        ck_assert_msg(o.has_value(), "%s", o ? "" : o.error().message.c_str());
        judge(world, *o, true);
        for (const JobOutcome& job : o->jobs) moves += job.moves, freezes += job.freezes;
    }
    ck_assert_uint_gt(moves, 50);
    ck_assert_uint_gt(freezes, 200);
}
END_TEST

START_TEST(a_dearer_gang_freezes_whom_it_needs_the_place_of_at_once_and_all_go_on_after_it) {
    World world;
    world.clusters = clusters_of({4, 4});
    world.terms = {1000, 0, 0, 0};
    Job single = unordered({4});
    single.run_ms = single.estimate_ms = 100;
    single.value = 5;
    Job gang = unordered({3, 3});
    gang.run_ms = gang.estimate_ms = 50;
    gang.value = 9;
    gang.submit_ms = 10;
    world.jobs = {single, single, gang};
    const auto policy = make_solver_policy(world);
    ck_assert(policy.has_value());
    const Result<Outcome> o = run(world, **policy);
    ck_assert(o.has_value());
    judge(world, *o, true);
    ck_assert_int_eq(o->jobs[2].start_ms, 10);
    ck_assert_int_eq(o->jobs[2].end_ms, 60);
    for (const size_t job : {0, 1}) {
        ck_assert_uint_eq(o->jobs[job].freezes, 1);
        ck_assert_int_eq(o->jobs[job].end_ms, 150);
    }
}
END_TEST

START_TEST(what_the_solver_cannot_be_asked_is_refused_by_name) {
    World world;
    world.clusters = clusters_of({4, 4});
    world.jobs = {unordered({1, 1}), unordered({1, 1})};
    ck_assert(make_solver_policy(world).has_value());
    world.jobs[1].kind = Kind::ordered;
    world.jobs[1].components[0].cluster = 1;
    const auto refused = make_solver_policy(world);
    ck_assert(!refused && refused.error().message.find("job 2: ") == 0);
    world.jobs[1] = unordered(std::vector<int64_t>(2000, 1));
    ck_assert(!make_solver_policy(world));
}
END_TEST

}  // namespace

UNIT_SUITE_LONG(coallocation_solver, 120,
                under_the_solver_a_gang_holds_all_its_places_or_none_and_does_all_its_work,
                a_dearer_gang_freezes_whom_it_needs_the_place_of_at_once_and_all_go_on_after_it,
                what_the_solver_cannot_be_asked_is_refused_by_name);
