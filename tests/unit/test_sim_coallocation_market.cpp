// SPDX-License-Identifier: GPL-2.0-or-later
// The market with moves over jobs of several components, judged by brute force.
#include "market/sim/coallocation_market.hpp"
#include "tests/unit/coallocation_world.hpp"

using namespace souk;
using namespace souk::unit::coallocation;

namespace {

World market_world(Rng& rng, std::unique_ptr<Placement>& near, size_t clusters_max) {
    World world;
    std::vector<int64_t> sizes;
    const int64_t clusters = rng.between(1, static_cast<int64_t>(clusters_max));
    for (int64_t i = 0; i < clusters; ++i) sizes.push_back(rng.between(3, 9));
    world.clusters = clusters_of(sizes);
    near = make_near_placement(world.clusters);
    fill_market(world, rng, [&](const Job& job) { return near->place(job, sizes).has_value(); });
    return world;
}

// Looks at what an answer leaves: who stands still beside whom.
class Witness : public Policy {
  public:
    Witness(Policy& inner, bool values) : inner_(inner), values_(values) {}
    std::vector<sim::coallocation::Order> act(const View& view) override {
        std::vector<sim::coallocation::Order> orders = inner_.act(view);
        std::map<uint32_t, int64_t> held;  // processors, by job
        int64_t idle = 0;
        for (const int64_t n : view.idle) idle += n;
        for (const uint32_t r : view.running) held[r] = view.jobs[r].cpus, idle += held[r];
        std::set<uint32_t> still(view.queue.begin(), view.queue.end());
        for (const sim::coallocation::Order& o : orders) {
            const bool moves = view.progress[o.job].state == Progress::State::running;
            ck_assert(moves || !o.where.empty());
            moved += moves && !o.where.empty();
            frozen += o.where.empty();
            held.erase(o.job);
            still.erase(o.job);
            if (o.where.empty()) still.insert(o.job);
            if (!o.where.empty()) held[o.job] = view.jobs[o.job].cpus;
        }
        for (const auto& [job, cpus] : held) idle -= cpus;
        for (const uint32_t job : still) {
            if (!values_) continue;
            int64_t room = idle;
            for (const auto& [other, cpus] : held)
                if (view.jobs[other].value * 1500 < view.jobs[job].value * 1000 &&
                    !ends_soon(view, other))
                    room += cpus;
            ck_assert_int_lt(room, view.jobs[job].cpus);
            ++seen;
        }
        return orders;
    }
    size_t moved = 0, frozen = 0, seen = 0;

  private:
    static bool ends_soon(const View& view, uint32_t job) {
        return view.progress[job].state == Progress::State::running &&
               view.progress[job].until_ms - view.now_ms <=
                   view.terms->freeze_ms + view.terms->thaw_ms;
    }
    Policy& inner_;
    const bool values_;
};

}  // namespace

START_TEST(a_gang_holds_all_its_places_or_none_and_does_all_its_work) {
    size_t moved = 0, frozen = 0;
    for (uint64_t seed = 1; seed <= 300; ++seed) {
        Rng rng(seed);
        std::unique_ptr<Placement> near;
        const World world = market_world(rng, near, 4);
        const auto market = make_market(*near, {1500, 200});
        Witness witness(*market, false);
        const Result<Outcome> o = run(world, witness);
        ck_assert_msg(o.has_value(), "%s", o ? "" : o.error().message.c_str());
        judge(world, *o, true);
        std::vector<int64_t> held(world.jobs.size()), in_one(world.jobs.size());
        for (const Stretch& s : o->stretches) {
            held[s.job] += s.to_ms - s.from_ms;
            if (spread(s.where) < 2) in_one[s.job] += s.to_ms - s.from_ms;
        }
        for (size_t i = 0; i < world.jobs.size(); ++i) {
            const Job& job = world.jobs[i];
            const JobOutcome& done = o->jobs[i];
            // At least its work, at most its work apart, with a pause for each step (each may cost
            // a millisecond of rounding).
            const int64_t apart = (job.run_ms * world.terms.slowdown + 999) / 1000;
            const int64_t least = job.overhead_ms + job.run_ms;
            ck_assert_int_ge(held[i] + 2 * (done.moves + done.freezes), least);
            const int64_t pauses = done.moves * (world.terms.move_ms + 2) +
                                   done.freezes * (world.terms.freeze_ms + world.terms.thaw_ms + 2);
            ck_assert_int_le(held[i], job.overhead_ms + apart + pauses);
        }
        moved += witness.moved;
        frozen += witness.frozen;
    }
    ck_assert_uint_gt(moved, 200);
    ck_assert_uint_gt(frozen, 500);
}
END_TEST

START_TEST(nobody_stands_still_for_those_that_are_worth_less) {
    size_t seen = 0;
    for (uint64_t seed = 1; seed <= 300; ++seed) {
        Rng rng(seed);
        std::unique_ptr<Placement> near;
        const World world = market_world(rng, near, 1);
        const auto market = make_market(*near, {1500, 1'000'000});
        Witness witness(*market, true);
        ck_assert(run(world, witness).has_value());
        seen += witness.seen;
    }
    ck_assert_uint_gt(seen, 1000);
}
END_TEST

START_TEST(a_gang_that_fits_in_sum_gets_room_by_moves_and_is_drawn_together) {
    World world;
    world.clusters = clusters_of({10, 10});
    world.terms = {1500, 1, 1, 1};
    Job half = unordered({6});
    half.run_ms = half.estimate_ms = 1000;
    Job short_one = unordered({4});
    short_one.run_ms = short_one.estimate_ms = 100;
    Job pair = unordered({4, 4});
    pair.run_ms = pair.estimate_ms = 1000;
    world.jobs = {half, half, short_one, pair};
    world.jobs[3].submit_ms = 10;
    const auto near = make_near_placement(world.clusters);
    const auto market = make_market(*near, {});
    const Result<Outcome> o = run(world, *market);
    ck_assert(o.has_value());
    judge(world, *o, true);
    // 6 and 4 in one cluster, 6 in the other: two 4s fit when the short one has ended, apart.
    ck_assert_int_eq(o->jobs[3].start_ms, 100);
    // At 1000 the halves end, and it is drawn together: 600 done, 1 ms of pause, 400 left.
    ck_assert_uint_eq(o->jobs[3].moves, 1);
    ck_assert_int_eq(o->jobs[3].end_ms, 1401);

    // 3 and 3 idle, and a job of one component of 6: one of 3 has to make room.
    World tight;
    tight.clusters = clusters_of({6, 6});
    tight.terms = {1000, 5, 1, 1};
    Job three = unordered({3});
    three.run_ms = three.estimate_ms = 500;
    Job hold = unordered({3});
    hold.run_ms = hold.estimate_ms = 50;
    Job six = unordered({6});
    six.run_ms = six.estimate_ms = 100;
    tight.jobs = {three, hold, three, hold, six};
    tight.jobs[4].submit_ms = 60;
    const auto tight_near = make_near_placement(tight.clusters);
    const auto second = make_market(*tight_near, {});
    const Result<Outcome> moved = run(tight, *second);
    ck_assert(moved.has_value());
    judge(tight, *moved, true);
    ck_assert_int_eq(moved->jobs[4].start_ms, 60);
    ck_assert_uint_eq(moved->jobs[0].moves + moved->jobs[2].moves, 1);
    // The same where each is a total job, whose cluster is not named.
    for (Job& job : tight.jobs) job.kind = Kind::total;
    const auto third = make_market(*tight_near, {});
    const Result<Outcome> whole = run(tight, *third);
    ck_assert(whole.has_value());
    ck_assert_int_eq(whole->jobs[4].start_ms, 60);
}
END_TEST

UNIT_SUITE_LONG(coallocation_market, 120, a_gang_holds_all_its_places_or_none_and_does_all_its_work,
                nobody_stands_still_for_those_that_are_worth_less,
                a_gang_that_fits_in_sum_gets_room_by_moves_and_is_drawn_together);
