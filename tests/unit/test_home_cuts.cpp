// SPDX-License-Identifier: GPL-2.0-or-later
// A gang is frozen at one cut, and thaws as one: what its home says when nodes say what.
#include "agentd/core/gang_freeze.hpp"

#include "tests/unit/gang_rig.hpp"

using namespace souk;
using namespace souk::unit;

namespace {

// The components run.
struct Cuts : Apart<Cuts> {
    Epoch cut_of(uint64_t seq) const { return job(seq).last_epoch; }
    Cuts& begin(uint32_t components) {
        submit(components);
        return start(components);
    }
    // All components are dumped, and stand.
    Cuts& dumped(uint32_t components) {
        begin(components).suspend(1);
        for (uint32_t i = 1; i <= of; ++i) says(i, GuestState::dump_ready);
        for (uint32_t i = 1; i <= of; ++i) says(i, GuestState::dumping);
        for (uint32_t i = 1; i <= of; ++i) says(i, GuestState::shipped);
        return *this;
    }
    Cuts& frozen(uint32_t components) {
        dumped(components);
        for (uint32_t i = 1; i <= of; ++i) says(i, GuestState::frozen);
        return *this;
    }
    // The images of all are thawed where they lie; all but the last are held.
    Cuts& thawing(uint32_t components) {
        frozen(components);
        for (uint32_t i = 1; i <= of; ++i) run(i, node(i).c_str());
        for (uint32_t i = 1; i <= of; ++i) there(i, GuestState::prepared);
        for (uint32_t i = 1; i < of; ++i) there(i, GuestState::held);
        return *this;
    }
    // The dump of the component has failed, and it stands where it is.
    Cuts& stands(uint64_t seq) {
        GuestEvent e;
        e.id = {"n1", seq};
        e.epoch = job(seq).epoch;
        e.state = GuestState::dumping;
        e.in_place = true;
        e.cannot_move = "it cannot be dumped";
        out.clear();
        h.guest_event(job(seq).at.node, e, now, out);
        return *this;
    }
};

}  // namespace

START_TEST(all_are_told_to_dump_at_once_when_all_are_ready) {
    Cuts g;
    g.begin(3).suspend(2);
    ck_assert_text(g.text(), "P prepare_dump n2.1 P prepare_dump n3.1 P prepare_dump n4.1");
    ck_assert_text(g.words(GuestVerb::prepare_dump), "n2* n3* n4*");
    ck_assert_text(g.phases(3), "freezing freezing freezing");
    ck_assert_text(g.says(1, GuestState::dump_ready).text(), "");
    ck_assert_text(g.says(3, GuestState::dump_ready).text(), "");
    g.says(2, GuestState::dump_ready);
    ck_assert_text(g.words(GuestVerb::freeze), "n2* n3* n4*");
    // An order of one that comes meanwhile waits.
    ck_assert_text(g.suspend(1).text(), "");
    ck_assert_text(g.run(3, "n5").text(), "");
}
END_TEST

START_TEST(one_write_freezes_all_when_the_last_stands_and_the_story_tells_how_close_it_was) {
    Cuts g;
    g.begin(3).suspend(1);
    for (uint32_t i = 1; i <= 3; ++i) g.says(i, GuestState::dump_ready);
    g.says(1, GuestState::dumping).after_ms(3);
    g.says(3, GuestState::dumping).after_ms(4);
    g.says(2, GuestState::dumping);
    ck_assert_text(g.says(3, GuestState::shipped).text(), "");
    ck_assert_text(g.says(1, GuestState::shipped).text(), "");
    ck_assert_text(g.says(2, GuestState::shipped).text(),
                   "P commit n2.1 P commit n3.1 P commit n4.1");
    for (uint32_t i = 1; i <= 3; ++i) ck_assert(g.job(i).cut == CutStep::decided);
    ck_assert_text(g.says(2, GuestState::shipped).text(), "commit n3.1");  // it did not arrive
    for (uint32_t i = 1; i <= 3; ++i) g.says(i, GuestState::frozen);
    ck_assert_text(g.phases(3), "frozen frozen frozen");
    const StoryStep& last = g.job(2).story.steps().back();
    ck_assert(last.what == StoryStep::What::frozen);
    ck_assert_uint_eq(last.components, 3);
    ck_assert_int_eq(last.skew.ns, Nanos::from_ms(7).ns);
    ck_assert(g.job(2).cut == CutStep::none);
}
END_TEST

START_TEST(one_that_cannot_be_frozen_lets_all_go_on_where_they_were) {
    Cuts g;
    g.begin(3).suspend(1);
    for (uint32_t i = 1; i <= 3; ++i) g.says(i, GuestState::dump_ready);
    g.says(1, GuestState::shipped).says(2, GuestState::running, "no room");
    ck_assert_text(g.phases(3), "running running running");
    ck_assert_text(g.words(GuestVerb::resume), "n2 n3 n4");
    ck_assert_text(g.words(GuestVerb::commit), "");
    ck_assert_text(g.job(1).comment, "component 1 could not be frozen, and so none is: no room");
    ck_assert(g.job(3).comment.code == CauseCode::dump_failed);
    // Messages about the given-up cut do not count for the next one.
    g.suspend(3);
    for (uint32_t i = 1; i <= 3; ++i) g.says(i, GuestState::dump_ready);
    GuestEvent late;
    late.id = {"n1", 1};
    late.epoch = g.job(1).epoch;
    late.state = GuestState::shipped;
    late.held_for = {2};
    g.out.clear();
    g.h.guest_event("n2", late, g.now, g.out);
    g.says(2, GuestState::shipped).says(3, GuestState::shipped);
    ck_assert_text(g.phases(3), "freezing freezing freezing");
    ck_assert_text(g.says(1, GuestState::shipped).words(GuestVerb::commit), "n2 n3 n4");
}
END_TEST

START_TEST(who_is_not_ready_in_time_lets_all_go_on) {
    Cuts g;
    g.begin(2).suspend(1).says(1, GuestState::dump_ready);
    g.now += Nanos::from_s(61);
    g.out.clear();
    (void)g.h.tick(g.now, g.out);
    ck_assert_text(g.phases(2), "running running");
    ck_assert_text(g.words(GuestVerb::resume), "n2 n3");
}
END_TEST

START_TEST(a_move_that_is_not_decided_is_given_up_for_a_cut_and_a_decided_one_is_waited_for) {
    Cuts g;
    g.begin(3).run(2, "n5");
    g.suspend(1);
    ck_assert_text(g.phases(3), "freezing freezing freezing");
    ck_assert_text(g.words(GuestVerb::kill), "n5");
    Cuts d;
    d.begin(2).run(2, "n5");
    d.says(2, GuestState::dump_ready).there(2, GuestState::prepared);
    d.there(2, GuestState::held);
    ck_assert(d.job(2).step == MoveStep::kill_old);
    d.suspend(1).says(1, GuestState::dump_ready);
    ck_assert_text(d.words(GuestVerb::freeze), "");
    d.said(2, "n3", 1, GuestState::frozen);
    d.there(2, GuestState::running);
    ck_assert_text(d.phases(2), "freezing freezing");
    ck_assert_text(d.words(GuestVerb::prepare_dump), "n5*");
    ck_assert_text(d.says(2, GuestState::dump_ready).words(GuestVerb::freeze), "n2* n5*");
}
END_TEST

START_TEST(a_home_that_comes_back_gives_a_cut_up_or_finishes_it) {
    Cuts g;
    g.begin(2).suspend(1);
    g.says(1, GuestState::dump_ready).says(2, GuestState::dump_ready);
    g.says(1, GuestState::shipped);
    Gang early = g.again(2);
    ck_assert_text(early.phases(2), "running running");
    ck_assert_text(early.text(), "P resume n2.1 P resume n3.1");
    g.says(2, GuestState::shipped);
    Gang late = g.again(2);
    ck_assert_text(late.phases(2), "freezing freezing");
    late.out.clear();
    late.h.guest_up("n2", late.now, late.out);
    ck_assert_text(late.text(), "commit n2.1");
    late.said(1, "n2", 1, GuestState::frozen);
    // The node of the component has let it go on. It is paid for from then on, so it is written
    // down, and is frozen all the same, by itself.
    ck_assert_text(late.said(2, "n3", 1, GuestState::running).text(), "p freeze n3.1");
    late.said(2, "n3", 1, GuestState::frozen);
    ck_assert_text(late.phases(2), "frozen frozen");
}
END_TEST

START_TEST(a_node_of_an_older_version_freezes_its_component_by_itself) {
    Cuts g;
    g.begin(2).suspend(1);
    g.says(1, GuestState::dump_ready).says(2, GuestState::dump_ready);
    g.says(2, GuestState::frozen);
    ck_assert_text(g.phases(2), "freezing frozen");
    ck_assert_text(g.says(1, GuestState::shipped).words(GuestVerb::commit), "n2");
    g.says(1, GuestState::frozen);
    ck_assert_text(g.phases(2), "frozen frozen");
}
END_TEST

START_TEST(what_cannot_be_dumped_stands_in_place_with_the_others) {
    Cuts g;
    g.begin(2).suspend(1).says(1, GuestState::dump_ready);
    g.says(2, GuestState::running, "it cannot be dumped");  // its CRIU says so
    ck_assert_text(g.words(GuestVerb::freeze), "n2* n3*");
    g.says(1, GuestState::shipped);
    g.stands(2);
    ck_assert_text(g.words(GuestVerb::commit), "n2");
    ck_assert(g.job(2).phase == JobPhase::frozen && g.job(2).in_place);
    g.says(1, GuestState::frozen);
    // The component goes on with the other one, and not before.
    g.run(2, "n3");
    ck_assert_text(g.text(), "");
    g.run(1, "n2").there(1, GuestState::prepared).there(1, GuestState::held);
    ck_assert(g.text().find("resume n3.1") != std::string::npos);
    ck_assert_text(g.phases(2), "thawing running");
}
END_TEST

// A component that stands in place would move like a running one, and go on there without the
// others.
START_TEST(what_stands_in_place_goes_nowhere_else_by_an_order_that_has_waited) {
    Cuts g;
    g.begin(3).suspend(1);
    for (uint32_t i = 1; i <= 3; ++i) g.says(i, GuestState::dump_ready);
    g.run(1, "n5").stands(1);
    g.says(2, GuestState::shipped).says(3, GuestState::shipped);
    ck_assert_text(g.phases(3), "frozen freezing freezing");
    ck_assert_text(g.words(GuestVerb::commit), "n3 n4");
    ck_assert_text(g.words(GuestVerb::prepare), "");
    ck_assert_text(g.job(1).comment, "it stands on n2, and goes on there only");
    g.says(2, GuestState::frozen).says(3, GuestState::frozen).run(1, "n5");
    ck_assert(g.job(1).phase == JobPhase::frozen && g.job(1).in_place);
}
END_TEST

// The image of a thawing component is frozen with the others. If the cut waited for it, it would
// wait for the cut.
START_TEST(a_cut_does_not_wait_for_what_thaws) {
    Cuts g;
    g.begin(3).says(1, GuestState::frozen);  // by itself: its lease was over
    g.run(1, "n2").suspend(2);
    ck_assert_text(g.phases(3), "frozen freezing freezing");
    g.run(1, "n2").there(1, GuestState::prepared).there(1, GuestState::held);
    ck_assert_text(g.phases(3), "thawing freezing freezing");
    g.says(2, GuestState::dump_ready).says(3, GuestState::dump_ready);
    ck_assert_text(g.words(GuestVerb::freeze), "n3* n4*");
    g.says(2, GuestState::shipped).says(3, GuestState::shipped);
    ck_assert_text(g.words(GuestVerb::commit), "n3 n4");
    ck_assert_text(g.phases(3), "thawing freezing freezing");
    // The thaw would wait for the others, so it is taken back.
    g.says(2, GuestState::frozen).says(3, GuestState::frozen);
    ck_assert_text(g.phases(3), "frozen frozen frozen");
}
END_TEST

// The source of a move that was rolled back stood in memory, and goes on as its home thaws it.
START_TEST(what_runs_after_all_is_frozen_with_the_others_and_not_taken_for_an_image) {
    Cuts g;
    g.begin(2).says(1, GuestState::frozen).run(1, "n5");
    ck_assert_text(g.phases(2), "thawing running");
    g.says(1, GuestState::running);
    ck_assert_text(g.phases(2), "running running");
    g.suspend(2);
    ck_assert_text(g.words(GuestVerb::prepare_dump), "n2* n3*");
}
END_TEST

START_TEST(one_that_ends_or_is_lost_in_a_cut_is_not_waited_for) {
    Cuts g;
    g.begin(3).suspend(1).says(1, GuestState::dump_ready).says(2, GuestState::dump_ready);
    g.said(3, "n4", 1, GuestState::exited);
    ck_assert_text(g.words(GuestVerb::freeze), "n2* n3*");
    ck_assert_text(g.phases(3), "freezing freezing finished");
    g.out.clear();
    ck_assert(g.h.cancel({"n1", 1}, g.now, g.out).has_value());
    ck_assert_text(g.words(GuestVerb::kill), "n3 n2");
}
END_TEST

START_TEST(one_write_lets_all_thaw_when_the_last_is_held) {
    Cuts g;
    g.thawing(3);
    ck_assert_text(g.phases(3), "thawing thawing thawing");
    ck_assert(g.job(1).step == MoveStep::transfer && g.job(1).cut == CutStep::held);
    ck_assert_text(g.there(3, GuestState::held).words(GuestVerb::release), "n2 n3 n4");
    for (uint32_t i = 1; i <= 3; ++i) ck_assert(g.job(i).step == MoveStep::release);
    for (uint32_t i = 1; i <= 3; ++i) g.there(i, GuestState::running);
    ck_assert_text(g.phases(3), "running running running");
}
END_TEST

START_TEST(one_that_cannot_thaw_takes_the_thaw_of_all_back) {
    Cuts g;
    g.thawing(3).there(3, GuestState::failed, "no memory");
    ck_assert_text(g.phases(3), "frozen frozen frozen");
    ck_assert(g.words(GuestVerb::kill).size() == std::string("n2 n3 n4").size());
    ck_assert(g.job(1).comment.code == CauseCode::components_taken_back);
    ck_assert_text(g.job(3).comment, "no memory");
    Cuts restarted;
    restarted.thawing(2);
    Gang again = restarted.again(2);
    ck_assert_text(again.phases(2), "frozen frozen");
    // No component waits for ever for another one that is given no order.
    Cuts late;
    late.frozen(2).run(1, "n2").there(1, GuestState::prepared).there(1, GuestState::held);
    late.now += Nanos::from_s(61);
    late.out.clear();
    (void)late.h.tick(late.now, late.out);
    ck_assert_text(late.phases(2), "frozen frozen");
    ck_assert(late.job(1).comment.code == CauseCode::components_late);
}
END_TEST

// Each of two components has an order that has waited. When the thaw is taken back, only one of
// them wakes by its order, and the other sees that.
START_TEST(a_thaw_that_is_taken_back_wakes_one_at_a_time) {
    Cuts g;
    Home::Limits limits;
    limits.wake = WakeRule::one;
    g.h.configured(limits);
    g.frozen(3);
    for (uint32_t i = 1; i <= 2; ++i)
        g.run(i, "n5").there(i, GuestState::prepared).there(i, GuestState::held);
    ck_assert_text(g.run(1, "n6").run(2, "n6").text(), "");
    ck_assert_text(g.phases(3), "thawing thawing frozen");
    g.now += Nanos::from_s(61);
    g.out.clear();
    (void)g.h.tick(g.now, g.out);  // the third has not come
    ck_assert_text(g.words(GuestVerb::kill), "n5 n5");
    ck_assert_text(g.words(GuestVerb::prepare), "n6");
    ck_assert_text(g.phases(3), "frozen thawing frozen");
}
END_TEST

UNIT_SUITE(home_cuts, all_are_told_to_dump_at_once_when_all_are_ready,
           one_write_freezes_all_when_the_last_stands_and_the_story_tells_how_close_it_was,
           one_that_cannot_be_frozen_lets_all_go_on_where_they_were,
           who_is_not_ready_in_time_lets_all_go_on,
           a_move_that_is_not_decided_is_given_up_for_a_cut_and_a_decided_one_is_waited_for,
           a_home_that_comes_back_gives_a_cut_up_or_finishes_it,
           a_node_of_an_older_version_freezes_its_component_by_itself,
           what_cannot_be_dumped_stands_in_place_with_the_others,
           what_stands_in_place_goes_nowhere_else_by_an_order_that_has_waited,
           a_cut_does_not_wait_for_what_thaws,
           what_runs_after_all_is_frozen_with_the_others_and_not_taken_for_an_image,
           one_that_ends_or_is_lost_in_a_cut_is_not_waited_for,
           one_write_lets_all_thaw_when_the_last_is_held,
           one_that_cannot_thaw_takes_the_thaw_of_all_back,
           a_thaw_that_is_taken_back_wakes_one_at_a_time);
