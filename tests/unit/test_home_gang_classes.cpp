// SPDX-License-Identifier: GPL-2.0-or-later
// Some components are not required. Their home decides for whom the gang waits, and whose end ends
// whom.
#include "agentd/core/home_gangs.hpp"
#include "tests/unit/gang_rig.hpp"

using namespace souk;
using namespace souk::unit;

namespace {

// A gang of two required components and one of that class.
Gang with(ComponentClass role) {
    Gang g;
    for (uint32_t i = 0; i < 3; ++i) {
        Submission s = Gang::component(i, 3);
        if (i == 2) s.group.role = role;
        ck_assert_text(g.refused(s), "");
    }
    return g;
}

Gang& required_run(Gang& g) {
    g.run(1, "n2").run(2, "n3");
    g.said(1, "n2", 1, GuestState::held).said(2, "n3", 1, GuestState::held);
    return g.said(1, "n2", 1, GuestState::running).said(2, "n3", 1, GuestState::running);
}

}  // namespace

START_TEST(the_first_component_is_required) {
    Gang g;
    Submission s = Gang::component(0, 2);
    s.group.role = ComponentClass::optional;
    ck_assert_text(g.refused(s), "the first component of a job is required, not optional");
}
END_TEST

START_TEST(an_optional_component_is_not_waited_for_and_the_market_knows_it) {
    Gang g = with(ComponentClass::optional);
    ck_assert(g.reported(3).optional);
    ck_assert(!g.reported(1).optional);
    g.run(1, "n2").run(2, "n3").said(1, "n2", 1, GuestState::held);
    ck_assert_text(g.said(2, "n3", 1, GuestState::held).text(), "P release n2.1 P release n3.1");
    g.said(1, "n2", 1, GuestState::running).said(2, "n3", 1, GuestState::running);
    // The component comes later than the others, and is released at once.
    ck_assert_text(g.run(3, "n4").text(), "P start n4.1");
    ck_assert_text(g.said(3, "n4", 1, GuestState::held).text(), "P release n4.1");
}
END_TEST

START_TEST(an_optional_component_that_is_held_is_released_with_the_required_ones_and_not_before) {
    Gang g = with(ComponentClass::optional);
    g.run(1, "n2").run(2, "n3").run(3, "n4");
    ck_assert_text(g.said(3, "n4", 1, GuestState::held).text(), "");
    ck_assert_text(g.said(1, "n2", 1, GuestState::held).text(), "");
    ck_assert_text(g.said(2, "n3", 1, GuestState::held).text(),
                   "P release n2.1 P release n3.1 P release n4.1");
}
END_TEST

START_TEST(an_optional_component_that_cannot_start_takes_nobody_back_and_its_end_ends_nobody) {
    Gang g = with(ComponentClass::optional);
    g.run(1, "n2").run(2, "n3").run(3, "n4").said(1, "n2", 1, GuestState::held);
    g.said(3, "n4", 1, GuestState::failed, 0, "no memory");
    ck_assert_text(g.phases(3), "starting starting waiting");
    ck_assert_text(g.said(2, "n3", 1, GuestState::held).text(), "P release n2.1 P release n3.1");
    g.said(1, "n2", 1, GuestState::running).said(2, "n3", 1, GuestState::running);
    g.run(3, "n2").said(3, "n2", 2, GuestState::held).said(3, "n2", 2, GuestState::running);
    ck_assert_text(g.phases(3), "running running running");
    g.said(3, "n2", 2, GuestState::exited, 3 << 8);
    ck_assert_text(g.phases(3), "running running finished");
    ck_assert(!g.job(1).cancelled && !g.job(2).cancelled);
}
END_TEST

START_TEST(what_is_not_required_ends_with_the_last_required_component) {
    Gang g = with(ComponentClass::optional);
    required_run(g);
    g.said(1, "n2", 1, GuestState::exited, 0);
    ck_assert_text(g.phases(3), "finished running waiting");
    Gang again = with(ComponentClass::optional);
    required_run(again).said(1, "n2", 1, GuestState::exited, 0);
    g.said(2, "n3", 1, GuestState::exited, 0);
    ck_assert_text(g.phases(3), "finished finished finished");
    ck_assert_text(g.job(3).why, "component 1 of the job has ended: exit status 0");
    // A running component is killed, also when its home restarts in between.
    again.run(3, "n4").said(3, "n4", 1, GuestState::held).said(3, "n4", 1, GuestState::running);
    again.said(2, "n3", 1, GuestState::exited, 0);
    ck_assert(again.text().find("kill n4.1") != std::string::npos);
    Gang back = again.again(3);
    ck_assert(back.job(3).cancelled);
    back.said(3, "n4", 1, GuestState::killed);
    ck_assert(back.job(3).why.code == CauseCode::component_ended);
    ck_assert_int_eq(back.job(3).wait_status, 0);  // its job has ended well
    // A required one that fails ends it as any other.
    Gang failed = with(ComponentClass::optional);
    required_run(failed);
    failed.said(2, "n3", 1, GuestState::exited, 3 << 8);
    ck_assert_text(failed.job(3).why, "component 1 of the job has ended: exit status 3");
}
END_TEST

START_TEST(an_interactive_component_is_waited_for_until_it_has_failed_to_start_several_times) {
    Gang g = with(ComponentClass::interactive);
    ck_assert(!g.reported(3).optional);
    for (uint32_t i = 1; i <= HomeGangs::interactive_tries_max; ++i) {
        g.run(1, "n2").run(2, "n3").run(3, "n4");
        g.said(1, "n2", i, GuestState::held);
        ck_assert_text(g.said(2, "n3", i, GuestState::held).text(), "");
        ck_assert_text(g.phases(3), "starting starting starting");
        g.said(3, "n4", i, GuestState::failed, 0, "no memory");
    }
    ck_assert_text(g.phases(3), "waiting waiting finished");
    ck_assert_text(g.job(3).why,
                   "its components could not start together in 3 tries, the last time since no "
                   "memory");
    ck_assert_uint_eq(g.reported(1).components, 2);
    const uint64_t next = HomeGangs::interactive_tries_max + 1;
    g.run(1, "n2").run(2, "n3").said(1, "n2", next, GuestState::held);
    ck_assert_text(g.said(2, "n3", next, GuestState::held).text(), "P release n2.4 P release n3.4");
}
END_TEST

START_TEST(the_end_of_an_interactive_component_ends_nobody) {
    Gang g = with(ComponentClass::interactive);
    g.run(3, "n4").said(3, "n4", 1, GuestState::held);
    ck_assert_text(g.phases(3), "waiting waiting starting");
    required_run(g).said(3, "n4", 1, GuestState::running);
    g.said(3, "n4", 1, GuestState::exited, 3 << 8);
    ck_assert_text(g.phases(3), "running running finished");
    ck_assert(!g.job(1).cancelled);
}
END_TEST

UNIT_SUITE(home_gang_classes, the_first_component_is_required,
           an_optional_component_is_not_waited_for_and_the_market_knows_it,
           an_optional_component_that_is_held_is_released_with_the_required_ones_and_not_before,
           an_optional_component_that_cannot_start_takes_nobody_back_and_its_end_ends_nobody,
           what_is_not_required_ends_with_the_last_required_component,
           an_interactive_component_is_waited_for_until_it_has_failed_to_start_several_times,
           the_end_of_an_interactive_component_ends_nobody);
