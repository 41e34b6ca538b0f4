// SPDX-License-Identifier: GPL-2.0-or-later
// Jobs of several components at their home: all are held and released by one step, or none runs.
#include "agentd/core/home_gangs.hpp"

#include <algorithm>

#include "tests/unit/gang_rig.hpp"

using namespace souk;
using namespace souk::unit;

namespace {

bool has(const HomeJob& job, const std::string& variable) {
    const auto& env = job.spec.launch.env;
    return std::find(env.begin(), env.end(), variable) != env.end();
}

}  // namespace

START_TEST(a_gang_waits_until_all_of_its_components_have_come) {
    Gang g;
    ck_assert_text(g.refused(Gang::component(0, 3)), "");
    ck_assert_text(g.reported(1).waits_for, "all of its 3 components to be submitted: 1 are");
    ck_assert_text(g.refused(Gang::component(1, 3)), "");
    g.out.clear();
    ck_assert_text(g.refused(Gang::component(2, 3)), "");
    for (uint64_t n = 1; n <= 3; ++n) {
        const JobReport r = g.reported(n);
        ck_assert_text(r.gang, "n1.1");
        ck_assert_uint_eq(r.component, n - 1);
        ck_assert_uint_eq(r.components, 3);
        ck_assert_text(r.waits_for, "");
        ck_assert(has(g.job(n), "SOUK_JOB=n1.1") && has(g.job(n), "SOUK_COMPONENTS=3"));
        ck_assert(has(g.job(n), "SOUK_COMPONENT=" + std::to_string(n - 1)));
    }
}
END_TEST

START_TEST(how_components_are_to_lie_goes_to_the_market_and_one_that_does_not_look_starts_none) {
    Gang g;
    for (uint32_t i = 0; i < 2; ++i) {
        Submission s = Gang::component(i, 2);
        s.group.node = i == 0 ? "n2" : "";
        s.group.spread = 1;
        s.group.pack = true;
        ck_assert_text(g.refused(s), "");
    }
    const JobReport r = g.reported(1);
    ck_assert_text(r.only_node, "n2");
    ck_assert(r.spread == 1 && r.pack && g.reported(2).only_node.empty());
    Order o;
    o.id = {"n1", 1};
    o.seq = 1;
    o.node = "n2";
    o.address = "n2:1";
    o.hold = true;  // and nothing of layouts: a market of the version before
    g.out.clear();
    g.h.order(o, g.now, g.out);
    ck_assert(g.job(1).phase == JobPhase::waiting);
    ck_assert_text(g.text(), "!n2");
    ck_assert(g.job(1).comment.code == CauseCode::components_not_held);
    ck_assert_text(g.job(1).comment,
                   "the market is of a version that places components on any nodes alone");
    o.seq = 2;
    o.layouts = true;
    g.out.clear();
    g.h.order(o, g.now, g.out);
    ck_assert(g.job(1).phase == JobPhase::starting);
    Gang near;
    for (uint32_t i = 0; i < 2; ++i) {
        Submission one = Gang::component(i, 2);
        one.group.near = true;
        one.group.near_trip_us = 100;
        ck_assert_text(near.refused(one), "");
    }
    ck_assert(near.reported(2).near && near.reported(2).near_trip_us == 100);
    near.h.order(o, near.now, near.out);  // of a market that knows layouts, and nothing of near
    ck_assert(near.job(1).phase == JobPhase::waiting);
    ck_assert_text(near.job(1).comment,
                   "the market is of a version that knows no nodes near each other");
    o.near = true;
    o.seq = 3;
    near.h.order(o, near.now, near.out);
    ck_assert(near.job(1).phase == JobPhase::starting);
    Gang other;
    ck_assert_text(other.refused(Gang::component(0, 2)), "");
    Submission s = Gang::component(1, 2);
    s.group.spread = 1;
    ck_assert_text(other.refused(s),
                   "the components of job n1.1 do not agree on how they are to lie");
    s.group.role = ComponentClass::optional;
    ck_assert_text(other.refused(s),
                   "a job of several components of which only so many may be on one node has no "
                   "optional ones");
}
END_TEST

START_TEST(what_cannot_be_a_component_is_refused_in_one_line) {
    Gang g;
    ck_assert_text(g.refused(Gang::component(0, 10'000)),
                   "a job of several components has at most 1024 of them, not 10000");
    ck_assert_text(g.refused(Gang::component(3, 3)), "component 3 of 3 comes out of turn");
    ck_assert_text(g.refused(Gang::component(1, 3, 9)),
                   "there is no job n1.9 of several components of yours here");
    Submission s = Gang::component(0, 2);
    s.terms.strategy = "patient";
    ck_assert_text(g.refused(s), "a job of several components bids its price: it has no strategy");
    s = Gang::component(0, 2);
    s.group.first = true;
    ck_assert_text(g.refused(s),
                   "a job of several components is neither part of an array nor "
                   "waits for another job");
    g.submit(2);
    ck_assert_text(g.refused(Gang::component(1, 2)), "job n1.1 takes no more components");
}
END_TEST

START_TEST(what_a_gang_shares_changes_for_all_in_one_step_and_the_rest_for_one) {
    Gang g;
    g.submit(2);
    Submission big = Gang::component(0, 2);
    big.terms.cpus = 3;
    ck_assert_text(g.refused(big), "");
    JobTerms wanted = g.job(3).terms;
    ck_assert(!g.h.change({"n1", 3}, wanted, g.now, g.out).has_value());  // the other is to come
    ck_assert_text(g.refused(Gang::component(1, 2, 3)), "");
    wanted.max_price = Money::units(7);
    wanted.budget = Money::units(8);
    wanted.memory_mb = 512;
    wanted.finish = Nanos::from_s(3'600);
    g.out.clear();
    ck_assert(g.h.change({"n1", 3}, wanted, g.now, g.out).has_value());
    ck_assert_text(g.text(), "P P");
    for (const uint64_t seq : {3, 4}) {
        const JobTerms& t = g.job(seq).terms;
        ck_assert(t.max_price == Money::units(7) && t.finish == Nanos::from_s(3'600));
        ck_assert(t.budget == Money::units(seq == 3 ? 6 : 2));
        ck_assert_int_eq(t.memory_mb, seq == 3 ? 512 : 0);
        ck_assert(g.reported(seq).terms == t);
    }
    // A budget that nobody changes stays as it was divided.
    wanted = g.job(4).terms;
    wanted.max_price = Money::units(9);
    ck_assert(g.h.change({"n1", 4}, wanted, g.now, g.out).has_value());
    ck_assert(g.job(3).terms.budget == Money::units(6) && g.job(4).terms.budget == Money::units(2));
    ck_assert(g.job(3).terms.max_price == Money::units(9));
    const auto refused = [&](const JobTerms& terms) {
        return !g.h.change({"n1", 4}, terms, g.now, g.out).has_value();
    };
    JobTerms other = wanted;
    other.cpus = 2;
    ck_assert(refused(other));
    other = wanted;
    other.strategy = "patient";
    ck_assert(refused(other));
    other = wanted;
    other.budget = Money{2};  // of four CPUs
    ck_assert(refused(other));
    ck_assert(g.job(4).terms == wanted);
}
END_TEST

START_TEST(all_components_are_released_by_one_step_when_the_last_is_held) {
    Gang g;
    g.submit(3);
    ck_assert_text(g.run(1, "n2").text(), "P start n2.1");
    g.run(2, "n3").run(3, "n4");
    ck_assert_text(g.said(2, "n3", 1, GuestState::held).text(), "");
    ck_assert_text(g.said(1, "n2", 1, GuestState::held).text(), "");
    ck_assert_text(g.said(2, "n3", 1, GuestState::held).text(), "");  // says it again
    ck_assert_text(g.said(3, "n4", 1, GuestState::held).text(),
                   "P release n2.1 P release n3.1 P release n4.1");
    ck_assert(!g.job(1).spec.hold && !g.job(3).spec.hold);
    g.said(1, "n2", 1, GuestState::running).said(2, "n3", 1, GuestState::running);
    // the release has not arrived there
    ck_assert_text(g.said(3, "n4", 1, GuestState::held).text(), "release n4.1");
    g.said(3, "n4", 1, GuestState::running);
    ck_assert_text(g.phases(3), "running running running");
}
END_TEST

START_TEST(one_that_cannot_start_takes_the_start_of_all_back) {
    Gang g;
    g.submit(3).run(1, "n2").run(2, "n3").run(3, "n4");
    g.said(1, "n2", 1, GuestState::held).said(3, "n4", 1, GuestState::held);
    // the market bars its node, and not those of the others (by the code of the cause)
    ck_assert_text(g.said(2, "n3", 1, GuestState::failed, 0, "no memory").text(),
                   "!n3 P drop n3.1 !n2 P kill n2.1 !n4 P kill n4.1 P");
    ck_assert_text(g.phases(3), "waiting waiting waiting");
    ck_assert_text(g.job(1).comment,
                   "component 1 could not start: the start of the others is taken back");
    ck_assert_uint_eq(g.job(1).group.tries, 1);
    // A slow node may still report the old copy. That changes nothing.
    ck_assert_text(g.said(1, "n2", 1, GuestState::held).text(), "kill n2.1");
    g.run(1, "n2").run(2, "n4").run(3, "n4");
    g.said(1, "n2", 2, GuestState::held).said(2, "n4", 2, GuestState::held);
    ck_assert_text(g.said(3, "n4", 2, GuestState::held).text(),
                   "P release n2.2 P release n4.2 P release n4.2");
}
END_TEST

START_TEST(what_a_node_lacks_for_one_component_it_lacks_for_all_that_have_its_program) {
    Gang g;
    g.submit(3).run(1, "n2").run(2, "n3");
    GuestEvent e;
    e.id = {"n1", 1};
    e.epoch = {1};
    e.state = GuestState::failed;
    e.error = 2;
    e.program_error = true;
    e.why = "no such program";
    g.out.clear();
    g.h.guest_event("n2", e, g.now, g.out);
    ck_assert_text(g.phases(3), "waiting waiting waiting");
    for (uint64_t n = 1; n <= 3; ++n) {
        ck_assert(g.reported(n).lacking == std::vector<NodeName>{"n2"});
        ck_assert_int_eq(g.job(n).lacking_status, 127 << 8);
    }
}
END_TEST

START_TEST(who_is_not_ready_in_time_is_waited_for_no_longer) {
    Gang g;
    g.submit(2).run(1, "n2");
    g.said(1, "n2", 1, GuestState::held);  // nothing comes of the other
    g.now += Nanos::from_s(59);
    g.out.clear();
    (void)g.h.tick(g.now, g.out);
    ck_assert_text(g.phases(2), "starting waiting");
    g.now += Nanos::from_s(2);
    g.out.clear();
    (void)g.h.tick(g.now, g.out);
    ck_assert_text(g.phases(2), "waiting waiting");
    ck_assert_text(g.job(1).comment, "not all components were ready within 60 s");
}
END_TEST

START_TEST(after_so_many_tries_a_gang_ends) {
    Gang g;
    g.submit(2);
    for (uint32_t i = 1; i < HomeGangs::tries_max; ++i) {
        g.run(1, "n2").run(2, "n3").said(2, "n3", i, GuestState::failed, 0, "no memory");
        ck_assert_text(g.phases(2), "waiting waiting");
    }
    g.run(1, "n2").run(2, "n3").said(2, "n3", 20, GuestState::failed, 0, "no memory");
    ck_assert_text(g.phases(2), "finished finished");
    for (uint64_t n = 1; n <= 2; ++n)
        ck_assert_text(g.job(n).why,
                       "its components could not start together in 20 tries, the "
                       "last time since no memory");
}
END_TEST

START_TEST(a_home_that_comes_back_goes_on_with_the_barrier_and_with_what_it_has_decided) {
    Gang g;
    g.submit(2).run(1, "n2").run(2, "n3").said(1, "n2", 1, GuestState::held);
    Gang before = g.again(2);  // it asks again, and its guests say it again
    ck_assert_text(before.said(2, "n3", 1, GuestState::held).text(), "");
    ck_assert_text(before.said(1, "n2", 1, GuestState::held).text(),
                   "P release n2.1 P release n3.1");
    g.said(2, "n3", 1, GuestState::held);
    Gang after = g.again(2);
    ck_assert_text(after.said(1, "n2", 1, GuestState::held).text(), "release n2.1");
    ck_assert_text(after.said(2, "n3", 1, GuestState::held).text(), "release n3.1");
}
END_TEST

START_TEST(a_gang_that_lacks_components_when_its_home_comes_back_ends) {
    Gang g;
    ck_assert_text(g.refused(Gang::component(0, 3)), "");
    ck_assert_text(g.refused(Gang::component(1, 3)), "");
    ck_assert_text(g.again(2).phases(2), "finished finished");
}
END_TEST

START_TEST(a_cancel_of_one_component_is_one_of_all) {
    Gang g;
    g.submit(3).run(1, "n2").run(2, "n3").said(1, "n2", 1, GuestState::held);
    g.out.clear();
    ck_assert(g.h.cancel({"n1", 3}, g.now, g.out).has_value());
    ck_assert_text(g.phases(3), "finished finished finished");
    ck_assert(g.text().find("kill n2.1") != std::string::npos);
    ck_assert(g.text().find("kill n3.1") != std::string::npos);
    for (uint64_t n = 1; n <= 3; ++n) ck_assert_text(g.job(n).why, "cancelled");
    ck_assert(g.job(1).stats.run_time == Nanos{});  // nobody pays while it is held
    Gang r;
    r.all_run(2);
    r.out.clear();
    ck_assert(r.h.cancel({"n1", 1}, r.now, r.out).has_value());
    ck_assert_text(r.text(), "P kill n2.1 P kill n2.1");
}
END_TEST

START_TEST(a_component_that_fails_ends_the_others_and_one_that_ends_well_does_not) {
    Gang g;
    g.all_run(3);
    g.said(1, "n2", 1, GuestState::exited, 0);
    ck_assert_text(g.phases(3), "finished running running");
    ck_assert_uint_eq(g.reported(2).components, 2);
    g.said(2, "n2", 1, GuestState::exited, 3 << 8);
    ck_assert(g.job(3).cancelled);
    g.said(3, "n2", 1, GuestState::killed);
    ck_assert_text(g.phases(3), "finished finished finished");
    ck_assert_text(g.job(2).why, "");
    ck_assert_int_eq(g.job(2).wait_status, 3 << 8);
    ck_assert_text(g.job(3).why, "component 1 of the job has ended: exit status 3");
    ck_assert(g.job(3).why.code == CauseCode::component_ended);
    // The reason is the same when the market has closed the account of the failed component.
    Gang late;
    late.all_run(3).said(2, "n2", 1, GuestState::exited, 3 << 8);
    JobNote note;
    note.id = {"n1", 2};
    note.settled = true;
    late.h.note(note, late.now, late.out);
    late.said(1, "n2", 1, GuestState::killed).said(3, "n2", 1, GuestState::killed);
    ck_assert(late.job(1).why.code == CauseCode::component_ended);
    ck_assert(late.job(3).why.code == CauseCode::component_ended);
}
END_TEST

START_TEST(a_node_that_is_lost_before_the_release_takes_no_component_with_it) {
    Gang g;
    g.submit(2).run(1, "n2").run(2, "n3").said(1, "n2", 1, GuestState::held);
    g.out.clear();
    g.h.node_lost("n3", g.now, g.out);
    ck_assert_text(g.phases(2), "waiting waiting");
    Gang r;
    r.all_run(2);
    r.out.clear();
    r.h.node_lost("n2", r.now, r.out);
    ck_assert_text(r.phases(2), "finished finished");
}
END_TEST

START_TEST(nothing_starts_where_a_component_would_not_be_held) {
    Gang g;
    g.submit(2);
    ck_assert_text(g.run(1, "n2", false).text(), "!n2");
    ck_assert(g.job(1).comment.code == CauseCode::components_not_held);
    // An older node does not know that it is to hold the component, and lets it run.
    g.run(1, "n2").run(2, "n3").said(2, "n3", 1, GuestState::running);
    ck_assert_text(g.phases(2), "waiting waiting");
    ck_assert(g.text().find("kill n3.1") != std::string::npos);
}
END_TEST

UNIT_SUITE(home_gangs, a_gang_waits_until_all_of_its_components_have_come,
           how_components_are_to_lie_goes_to_the_market_and_one_that_does_not_look_starts_none,
           what_cannot_be_a_component_is_refused_in_one_line,
           what_a_gang_shares_changes_for_all_in_one_step_and_the_rest_for_one,
           all_components_are_released_by_one_step_when_the_last_is_held,
           one_that_cannot_start_takes_the_start_of_all_back,
           what_a_node_lacks_for_one_component_it_lacks_for_all_that_have_its_program,
           who_is_not_ready_in_time_is_waited_for_no_longer, after_so_many_tries_a_gang_ends,
           a_home_that_comes_back_goes_on_with_the_barrier_and_with_what_it_has_decided,
           a_gang_that_lacks_components_when_its_home_comes_back_ends,
           a_cancel_of_one_component_is_one_of_all,
           a_component_that_fails_ends_the_others_and_one_that_ends_well_does_not,
           a_node_that_is_lost_before_the_release_takes_no_component_with_it,
           nothing_starts_where_a_component_would_not_be_held);
