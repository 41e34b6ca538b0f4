// SPDX-License-Identifier: GPL-2.0-or-later
// Admission by itself, with a solver and no market: which jobs of a user with limits compete, what
// a further one would find, and that who is held is found in the same way whatever came before.
#include <algorithm>

#include "kernel/base/rng.hpp"
#include "tests/unit/market_hall.hpp"

using namespace souk;
using namespace souk::market;

START_TEST(the_most_valuable_jobs_of_a_user_compete_and_the_others_are_held) {
    Hall hall;
    hall.job(1, 7, 10), hall.job(2, 7, 30), hall.job(3, 7, 20), hall.job(4, 8, 5);
    hall.limit(7, 2);
    hall.decide();
    ck_assert_text(hall.running(), "2 3 4");
    ck_assert(hall.book.find({"n1", 1})->held == Job::Held::jobs);
    // One that bids more takes its place; one that is gone leaves its own.
    Job& best = hall.job(5, 7, 40);
    hall.decide();
    ck_assert_text(hall.running(), "2 4 5");
    hall.solver.remove_job(best.key);
    hall.admission.unlist(best);
    hall.book.forget(best);
    hall.decide();
    ck_assert_text(hall.running(), "2 3 4");
    hall.limit(7, {});
    ck_assert(hall.admission.limited().empty());
    ck_assert(hall.book.find({"n1", 1})->held == Job::Held::none &&
              hall.book.user(7).order.empty());
}
END_TEST

START_TEST(a_job_too_large_for_the_rest_of_the_cpus_is_held_and_a_smaller_one_runs) {
    Hall hall;
    hall.job(1, 7, 30, 2), hall.job(2, 7, 20, 2), hall.job(3, 7, 10, 1);
    hall.limit(7, {}, 3);
    hall.decide();
    ck_assert_text(hall.running(), "1 3");
    const Job& large = *hall.book.find({"n1", 2});
    ck_assert(large.held == Job::Held::cpus);
    ck_assert_text(Admission::why(*large.user, large, large.held, false).text(),
                   "user 7 may use 3 CPUs at once; it needs 2");
    hall.book.user(7).record.name = "anna";
    ck_assert_text(Admission::why(*large.user, large, Job::Held::none, false).text(), "");
    hall.limit(7, 1, 3);
    hall.decide();
    ck_assert_text(hall.running(), "1");
    ck_assert_text(Admission::why(*large.user, large, Job::Held::jobs, false).text(),
                   "user anna may run 1 job at once");
    hall.book.user(7).record.limits.spend_per_day = Money::units(3);
    ck_assert_text(Admission::why(*large.user, large, Job::Held::jobs, true).text(),
                   "user anna has spent the 3 of this day (UTC); it goes on tomorrow, or with a "
                   "higher limit");
}
END_TEST

START_TEST(one_that_lost_its_contest_keeps_no_lesser_one_from_running) {
    Hall hall;
    hall.job(1, 7, 30, 4);  // does not fit beside the other user's
    hall.job(2, 7, 10);
    hall.job(3, 8, 50);
    hall.limit(7, 1);
    hall.decide();
    ck_assert_text(hall.running(), "2 3");
    ck_assert(hall.book.find({"n1", 1})->held == Job::Held::none);
}
END_TEST

START_TEST(what_nothing_is_decided_about_counts_first) {
    Hall hall;
    Job& least = hall.job(1, 7, 1);
    hall.job(2, 7, 30);
    hall.limit(7, 1);
    hall.fixed.insert(&least);
    least.user->claiming.insert(least.id());
    hall.decide();
    ck_assert(!hall.runs(*hall.book.find({"n1", 2})));
    ck_assert(hall.book.find({"n1", 2})->held == Job::Held::jobs);
    // It really runs: no other may begin beside it, and it may go on.
    least.user->cpus = 1;
    ck_assert(!Admission::has_room(*hall.book.find({"n1", 2})) && Admission::has_room(least));
    ck_assert(!Admission::bid_within(hall, *least.user, 1, weight_plain, hall.solver));
}
END_TEST

START_TEST(a_job_on_trial_is_judged_like_a_real_one_and_leaves_no_trace) {
    Hall hall;
    hall.job(1, 7, 20), hall.job(2, 7, 10);
    hall.limit(7, 2);
    hall.decide();
    ck_assert_text(hall.running(), "1 2");
    User user = hall.book.user(7);
    ck_assert(*Admission::bid_within(hall, user, 1, weight_plain, hall.solver) == Money::units(11));
    for (const int64_t bid : {5, 11}) {
        std::vector<Job> guests(1);
        Job& guest = guests[0];
        guest.record.report.uid = 7;
        guest.record.report.terms.cpus = 1;
        guest.record.arrived = hall_now;
        guest.key = {hall.book.free_key()};
        guest.user = &user;
        guest.bid = Money::units(bid);
        guest.listed = Rank::of(guest.bid, hall_now, guest.key);
        Solver trial = hall.solver.copy();
        ck_assert(trial.add_job(guest.key, hall.spec_of(guest, Job::Held::none)));
        const auto d =
            hall.admission.work_out(hall, hall.book.users(), trial, guests, hall_now, {7});
        ck_assert((trial.job(guest.key)->state == JobState::running) == (bid == 11));
        ck_assert(d.held_of(guest) == (bid == 11 ? Job::Held::none : Job::Held::jobs));
    }
    ck_assert_text(hall.running(), "1 2");
    ck_assert_uint_eq(hall.book.user(7).held, 0);
}
END_TEST

// Against one walk by rank over all jobs of everybody on one machine: who would pass a limit, or
// finds no room, is passed over.
START_TEST(in_any_order_of_events_the_same_jobs_run) {
    size_t held = 0;
    for (uint64_t seed = 1; seed <= 200; ++seed) {
        Rng rng(seed);
        Hall hall;
        for (int step = 0; step < 30; ++step) {
            const auto uid = static_cast<uint32_t>(rng.between(7, 9));
            if (rng.chance(0.3))
                hall.limit(
                    uid, rng.chance(0.5) ? std::optional<int32_t>(rng.between(0, 3)) : std::nullopt,
                    rng.chance(0.5) ? std::optional<int32_t>(rng.between(0, 4)) : std::nullopt);
            else
                hall.job(static_cast<uint64_t>(step) + 1, uid, rng.between(1, 60));
            // A walk of one user may leave some to the next call.
            do {
                hall.decide();
            } while (hall.admission.next() != Nanos::never());
            std::vector<const Job*> order;
            for (const auto& [id, job] : hall.book.jobs()) order.push_back(&job);
            std::sort(order.begin(), order.end(), [](const Job* a, const Job* b) {
                return Rank::of(a->bid, a->record.arrived, a->key) <
                       Rank::of(b->bid, b->record.arrived, b->key);
            });
            std::map<uint32_t, int32_t> used;
            int32_t room = 4;
            for (const Job* const job : order) {
                int32_t& mine = used[job->user->record.uid];
                const bool lets = job->user->lets(static_cast<size_t>(mine), mine, 1);
                const bool should = room > 0 && lets;
                ck_assert_msg(hall.runs(*job) == should, "seed %lu, step %d: %s runs %d",
                              static_cast<unsigned long>(seed), step, job->id().text().c_str(),
                              hall.runs(*job));
                mine += should;
                room -= should;
                held += job->held != Job::Held::none;
            }
        }
    }
    ck_assert(held > 1'000);
}
END_TEST

UNIT_SUITE(market_admission, the_most_valuable_jobs_of_a_user_compete_and_the_others_are_held,
           a_job_too_large_for_the_rest_of_the_cpus_is_held_and_a_smaller_one_runs,
           one_that_lost_its_contest_keeps_no_lesser_one_from_running,
           what_nothing_is_decided_about_counts_first,
           a_job_on_trial_is_judged_like_a_real_one_and_leaves_no_trace,
           in_any_order_of_events_the_same_jobs_run);
