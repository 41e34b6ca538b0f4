// SPDX-License-Identifier: GPL-2.0-or-later
// Market: what owners, operators and root order by hand.
#include "tests/unit/market_world.hpp"

using namespace souk;
using namespace souk::market;

namespace {
constexpr Nanos ms(int64_t v) { return Nanos::from_ms(v); }
constexpr Nanos s(int64_t v) { return Nanos::from_s(v); }
}  // namespace

START_TEST(cancel_is_for_the_owner_and_root_and_overtakes_an_order) {
    World w;
    three_nodes(w);
    const JobId a = w.submit("n3", 100), b = w.submit("n3", 90);
    w.decide();
    ck_assert_text(w.market->cancel(a, 1001).error().message, "job n3.1 belongs to another user");
    ck_assert_text(w.market->cancel({"n3", 77}, 0).error().message, "no such job: n3.77");
    ck_assert(w.market->cancel(a, 1000).has_value());  // while it starts
    ck_assert(w.market->cancel(b, 0).has_value());
    w.run_for(s(1));
    ck_assert_text(w.where(a) + w.where(b), "finishedfinished");
    ck_assert_text(w.market->cancel(a, 0).error().message, "job n3.1 is finished");
}
END_TEST

START_TEST(a_cancel_for_a_home_that_is_away_is_kept_even_over_a_restart) {
    World w;
    three_nodes(w);
    const JobId a = w.submit("n3", 100);
    w.run_for(s(1));
    w.disconnect("n3");
    ck_assert_text(*w.market->cancel(a, 0),
                   "job n3.1 is cancelled as soon as its home node n3 is connected");
    w.decide();
    w.restart();
    for (const char* n : {"n1", "n2", "n3"}) w.connect(n);
    w.run_for(s(1));
    ck_assert_text(w.where(a), "finished");
}
END_TEST

START_TEST(a_user_holds_and_releases_jobs_of_his_own_alone) {
    World w;
    three_nodes(w);
    const JobId a = w.submit("n3", 100);
    w.run_for(s(1));
    ck_assert_text(w.market->freeze(a, true, 1001).error().message,
                   "job " + a.text() + " belongs to another user");
    ck_assert(w.market->freeze(a, true, 1000).has_value());
    w.run_for(s(5));
    ck_assert(w.phase(a) == JobPhase::frozen);
    ck_assert_text(w.comment(a), "its user holds it back");
    ck_assert(w.market->release(a, 1000).has_value());
    w.run_for(s(5));
    ck_assert(w.phase(a) == JobPhase::running);
    // To hold a place against others is an operator's word, and nobody else undoes what he says.
    ck_assert(!w.market->thaw(a, "", true, 1000) && !w.market->thaw(a, "n2", false, 1000));
    ck_assert(w.market->freeze(a, true, 0).has_value());
    w.run_for(s(5));
    for (const auto& refused : {w.market->release(a, 1000), w.market->thaw(a, "", false, 1000),
                                w.market->freeze(a, false, 1000)})
        ck_assert_text(refused.error().message, "job " + a.text() + " is held by an operator");
    ck_assert(w.market->release(a, 0).has_value());
    w.run_for(s(5));
    ck_assert(w.phase(a) == JobPhase::running);
}
END_TEST

START_TEST(an_operator_moves_once_and_the_market_may_undo_it_but_not_a_hold) {
    World w;
    three_nodes(w);
    const JobId a = w.submit("n3", 100);
    w.run_for(s(1));
    ck_assert_text(w.market->move(a, "n2", false, 1000).error().message,
                   "only root may move a job, or hold it at a place; its user may freeze, thaw, "
                   "hold and release it");
    ck_assert_text(w.market->move(a, "n9", false, 0).error().message, "no such node: n9");
    ck_assert(w.market->move(a, "n3", false, 0).has_value());
    w.run_for(ms(15));
    // there, and on its way back
    ck_assert_text(w.where(a) == "n3" ? "n3" : to_string(w.phase(a)), "moving");
    w.run_for(s(1));
    ck_assert_text(w.where(a), "n1");
    ck_assert_int_eq(w.jobs[a].report.stats.migrations, 2);
    ck_assert(w.market->move(a, "n3", true, 0).has_value());
    w.run_for(s(100));
    ck_assert_text(w.where(a), "n3");
    ck_assert_text(w.comment(a), "held on n3 by the operator");
    const JobId b = w.submit("n3", 300), c = w.submit("n3", 250), d = w.submit("n3", 240);
    w.run_for(s(1));
    // nobody takes a held place
    ck_assert_text(w.where(a) + w.where(b) + w.where(c) + w.where(d), "n3n1n2waiting");
    ck_assert(w.market->release(a, 0).has_value());
    w.run_for(s(1));
    ck_assert_text(w.where(a) + w.where(d), "frozenn3");
    ck_assert_text(w.market->release(a, 0).error().message, "job n3.1 is not held");
}
END_TEST

START_TEST(a_hold_displaces_who_is_there_and_outlives_the_market) {
    World w;
    three_nodes(w);
    const JobId a = w.submit("n3", 100), b = w.submit("n3", 90);
    w.run_for(s(1));
    ck_assert(w.market->move(b, "n1", true, 0).has_value());  // n1 has the better bid
    w.run_for(s(1));
    ck_assert_text(w.where(a) + w.where(b), "n2n1");
    ck_assert(w.market->freeze(a, true, 0).has_value());
    w.run_for(s(1));
    ck_assert_text(w.where(a), "frozen");
    w.restart();
    for (const char* n : {"n1", "n2", "n3"}) w.connect(n);
    w.run_for(s(10));
    ck_assert_text(w.where(a) + w.where(b), "frozenn1");
    ck_assert_text(w.comment(a), "held frozen by the operator");
    ck_assert(w.market->thaw(a, "n3", true, 0).has_value());
    w.run_for(s(1));
    ck_assert_text(w.where(a), "n3");
    ck_assert(w.market->freeze(a, false, 0).has_value());  // once: it may go on at once
    w.run_for(s(1));
    ck_assert_text(w.where(a), "n2");
    ck_assert_int_eq(w.jobs[a].report.stats.freezes, 2);
}
END_TEST

START_TEST(a_freeze_once_of_a_job_that_its_home_freezes_in_that_moment_does_not_last) {
    World w;
    three_nodes(w);
    const JobId a = w.submit("n3", 100);
    w.run_for(s(1));
    World::HomeJob& job = w.jobs[a];
    w.stop_clock(job, w.now);
    job.report.phase = JobPhase::freezing;  // for its budget, say
    w.tell(job);
    ck_assert_text(*w.market->freeze(a, false, 0), "job n3.1 is being frozen");
    w.decide();
    job.report.phase = JobPhase::frozen;
    w.tell(job);
    w.run_for(s(1));
    ck_assert_text(w.where(a), "n1");
}
END_TEST

UNIT_SUITE(market_hand, a_user_holds_and_releases_jobs_of_his_own_alone,
           a_freeze_once_of_a_job_that_its_home_freezes_in_that_moment_does_not_last,
           cancel_is_for_the_owner_and_root_and_overtakes_an_order,
           a_cancel_for_a_home_that_is_away_is_kept_even_over_a_restart,
           an_operator_moves_once_and_the_market_may_undo_it_but_not_a_hold,
           a_hold_displaces_who_is_there_and_outlives_the_market);
