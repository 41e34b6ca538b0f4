// SPDX-License-Identifier: GPL-2.0-or-later
// HomeMoves and HomeRuns are tested by themselves: what each message of a node means, and which
// record is durable before which message leaves.
#include <cerrno>

#include "agentd/core/home_clock.hpp"
#include "agentd/core/home_delays.hpp"
#include "agentd/core/home_evacuations.hpp"
#include "agentd/core/home_gangs.hpp"
#include "agentd/core/home_groups.hpp"
#include "agentd/core/home_moves.hpp"
#include "agentd/core/home_records.hpp"
#include "agentd/core/home_reports.hpp"
#include "agentd/core/home_runs.hpp"
#include "tests/unit/home_rig.hpp"

using namespace souk;
using namespace souk::unit;

namespace {

constexpr Nanos s(int64_t n) { return Nanos::from_s(n); }

// A job that moves from n2 (1) to n3 (2).
struct Move : HomeRig {
    HomeMoves moves{{s(60), s(900)}};
    HomeJob job;
    HomeNext next;

    explicit Move(bool from_frozen = false) {
        job = running();
        if (from_frozen) job.phase = JobPhase::frozen, job.running_since = Nanos::never();
        moves.begin(job, to("n3"), turn());
    }
    Move& source(GuestState state, const char* why = "", uint64_t held_for = 0) {
        GuestEvent e = event(state, 1, why);
        e.held_for = {held_for};
        next = moves.source(job, e, turn());
        return *this;
    }
    Move& there(GuestState state, const char* why = "") {
        next = moves.candidate(job, event(state, 2, why), turn());
        return *this;
    }
    Move& shipping() { return source(GuestState::dump_ready).there(GuestState::prepared); }
    Move& held(uint64_t stands_for = 0) {
        return shipping().source(GuestState::shipped, "", stands_for).there(GuestState::held);
    }
};

// A job at its owner n2, with those that hear of it.
struct Run : HomeRig {
    HomeRuns runs{{s(60), s(900)}};
    HomeCheckpoints checkpoints{{{}, s(50), "a:1"}};
    HomeLeases leases;
    HomeExpels expels{s(4)};
    HomeJob job;
    HomeNext next;

    Run() { job = running(); }
    Run& hears(const GuestEvent& e) {
        next = runs.hears(job, e, turn(), {checkpoints, leases, expels});
        return *this;
    }
    Run& hears(GuestState state, const char* why = "") { return hears(event(state, 1, why)); }
    Run& cannot_move(const char* why) {
        GuestEvent e = event(GuestState::running);
        e.cannot_move = why;
        return hears(e);
    }
};

}  // namespace

START_TEST(nothing_is_shipped_before_both_ends_are_ready) {
    Move m;
    ck_assert_text(m.text(), "P prepare n3.2 prepare_dump n2.1");
    m.there(GuestState::prepared);
    ck_assert_text(m.text(), "");
    m.source(GuestState::dump_ready);
    ck_assert_text(m.text(), "ship n2.1");
    ck_assert(m.job.step == MoveStep::transfer);
    Move thaw(true);
    ck_assert_text(thaw.text(), "P prepare n3.2");
    thaw.there(GuestState::prepared);
    ck_assert_text(thaw.text(), "ship n2.1");
}
END_TEST

START_TEST(the_decision_is_durable_before_the_source_is_told_to_die_and_before_the_copy_runs) {
    Move m;
    m.held();
    ck_assert_text(m.text(), "P commit n2.1");
    ck_assert(m.job.step == MoveStep::kill_old && m.job.epoch == Epoch{1});
    m.source(GuestState::killed);
    ck_assert_text(m.text(), "P release n3.2");
    m.there(GuestState::running);
    ck_assert_text(m.text(), "P drop n2.1");
    ck_assert(is<home::Arrived>(m.next) && !std::get<home::Arrived>(m.next).says_more);
    ck_assert(m.job.at.node == "n3" && m.job.epoch == Epoch{2} && m.job.step == MoveStep::none);
    ck_assert(m.job.phase == JobPhase::running && m.job.stats.migrations == 1);
}
END_TEST

START_TEST(a_source_that_stands_for_this_move_need_not_die_first) {
    Move m;
    m.held(2);
    ck_assert_text(m.text(), "P release n3.2");
    ck_assert(m.job.step == MoveStep::release && m.moves.ready(m.job).source_stands);
    Move other;
    other.held(1);  // for another one
    ck_assert_text(other.text(), "P commit n2.1");
}
END_TEST

START_TEST(before_the_decision_any_failure_lets_the_source_go_on_and_ends_the_candidate) {
    const auto given_up = [](Move& m, const char* blamed) {
        ck_assert(is<home::Steady>(m.next));
        ck_assert_text(m.text(), std::string("!") + blamed + " P kill n3.2 resume n2.1");
        ck_assert(m.job.phase == JobPhase::running && m.job.step == MoveStep::none);
        ck_assert(m.job.epoch == Epoch{1} && m.job.stats.failed_moves == 1);
        ck_assert_uint_eq(m.job.orphans.size(), 1);
    };
    for (const GuestState bad : {GuestState::failed, GuestState::killed, GuestState::exited}) {
        Move preparing, shipping;
        given_up(preparing.there(bad, "no room"), "n3");
        given_up(shipping.shipping().there(bad), "n3");
    }
    Move source, interrupted, late;
    given_up(source.shipping().source(GuestState::dumping, "CRIU failed"), "n2");
    given_up(interrupted.shipping().source(GuestState::running), "n2");
    late.shipping();
    late.now = late.moves.due(late.job);
    late.next = late.moves.overdue(late.job, late.turn());
    given_up(late, "n3");
}
END_TEST

START_TEST(after_the_decision_the_candidates_loss_makes_the_source_the_job_again) {
    Move m;
    m.held().there(GuestState::failed, "it broke");
    ck_assert(is<home::Steady>(m.next));
    ck_assert_text(m.text(), "!n3 P kill n3.2 resume n2.1");
    ck_assert(m.job.phase == JobPhase::running && m.job.epoch == Epoch{1});
    // A source that has died since is its image.
    Move dead;
    dead.held().source(GuestState::killed);
    dead.there(GuestState::unknown);
    ck_assert(dead.job.phase == JobPhase::frozen);
    Move stands;
    stands.held(2).there(GuestState::unknown);
    ck_assert(stands.job.phase == JobPhase::running);
}
END_TEST

START_TEST(what_ended_after_it_was_released_has_arrived_and_says_more) {
    Move m;
    m.held().source(GuestState::retained).there(GuestState::exited);
    ck_assert(std::get<home::Arrived>(m.next).says_more);
}
END_TEST

START_TEST(steps_that_are_overdue_are_given_up_before_the_decision_and_asked_again_after_it) {
    Move m;
    m.now = m.moves.due(m.job);
    m.next = m.moves.overdue(m.job, m.turn());
    ck_assert(is<home::Steady>(m.next));
    Move decided;
    decided.held();
    for (const char* again : {"commit n2.1", "commit n2.1"}) {
        ck_assert(decided.moves.due(decided.job) == decided.now + s(60));
        decided.now = decided.moves.due(decided.job);
        decided.next = decided.moves.overdue(decided.job, decided.turn());
        ck_assert_text(decided.text(), again);
        ck_assert(is<home::Nothing>(decided.next));
    }
    decided.source(GuestState::unknown);
    decided.now = decided.moves.due(decided.job);
    decided.next = decided.moves.overdue(decided.job, decided.turn());
    ck_assert_text(decided.text(), "query n3.2");
    decided.moves.step_ended(decided.job);
    ck_assert(decided.moves.due(decided.job) == Nanos::never());
}
END_TEST

START_TEST(a_restart_gives_up_what_was_not_decided_and_goes_on_with_what_was) {
    Move undecided, decided;
    undecided.shipping();
    HomeMoves fresh{{s(60), s(900)}};
    undecided.next = fresh.restarted(undecided.job, undecided.turn());
    ck_assert(is<home::Steady>(undecided.next));
    ck_assert_text(undecided.text(), "P kill n3.2 resume n2.1");
    ck_assert_uint_eq(undecided.job.stats.failed_moves, 0);  // nobody failed
    decided.held();
    decided.next = fresh.restarted(decided.job, decided.turn());
    ck_assert(is<home::Nothing>(decided.next));
    ck_assert(decided.job.step == MoveStep::kill_old);
    ck_assert(fresh.due(decided.job) == decided.now + s(60));
}
END_TEST

START_TEST(the_pause_is_from_the_freeze_to_the_word_that_it_runs) {
    Move m;
    m.shipping().source(GuestState::dumping);
    m.now += Nanos::from_ms(70);
    m.source(GuestState::shipped);
    m.now += Nanos::from_ms(20);
    m.there(GuestState::held).source(GuestState::killed);
    m.now += Nanos::from_ms(10);
    m.there(GuestState::filling);
    m.now += s(5);
    m.there(GuestState::running);
    ck_assert(m.job.stats.longest_pause == Nanos::from_ms(100));
    const StoryStep& moved = m.job.story.steps().back();
    ck_assert(moved.sent == Nanos::from_ms(70) && moved.held == Nanos::from_ms(90));
    ck_assert(moved.released == Nanos::from_ms(90) && moved.pause == Nanos::from_ms(100));
}
END_TEST

START_TEST(a_start_is_on_disk_with_its_epoch_before_the_command) {
    Run r;
    r.job = HomeRig::waiting();
    r.runs.start(r.job, HomeRig::to("n2"), r.turn());
    ck_assert_text(r.text(), "P start n2.1");
    ck_assert(r.job.last_epoch == Epoch{1} && r.job.running_since == Nanos::never());
    // The record holds since when it may run, for a daemon that comes back.
    ck_assert(std::get<home::Persist>(r.out[0]).job.running_since == r.now);
    r.now = r.runs.due(r.job);
    r.runs.overdue(r.job, r.turn());
    ck_assert_text(r.text(), "query n2.1");
    r.hears(GuestState::unknown);
    ck_assert_text(r.text(), "start n2.1");
    r.hears(GuestState::running);
    ck_assert_text(r.text(), "p");
    ck_assert(is<home::Steady>(r.next) && r.job.phase == JobPhase::running);
    ck_assert(r.job.running_since == r.now && r.job.places == std::vector<NodeName>({"n2"}));
}
END_TEST

START_TEST(a_start_that_fails_leaves_the_job_waiting_and_an_orphan_to_ask_after) {
    Run r;
    r.job = HomeRig::waiting();
    r.runs.start(r.job, HomeRig::to("n2"), r.turn());
    r.hears(GuestState::failed, "no memory");
    ck_assert_text(r.text(), "!n2 P drop n2.1");
    ck_assert(is<home::Steady>(r.next) && r.job.phase == JobPhase::waiting);
    ck_assert(r.job.at.node.empty() && r.job.orphans.size() == 1);
}
END_TEST

START_TEST(a_node_without_the_program_is_noted_and_the_kindest_status_is_the_jobs_end) {
    Run r;
    r.job = HomeRig::waiting();
    int epoch = 0;
    for (const auto& [node, error] : {std::pair{"n2", EACCES}, {"n3", ENOENT}, {"n4", EACCES}}) {
        r.runs.start(r.job, HomeRig::to(node), r.turn());
        GuestEvent e = HomeRig::event(GuestState::failed, ++epoch, "no");
        e.program_error = true;
        e.error = error;
        r.hears(e);
        ck_assert(r.job.phase == JobPhase::waiting);
    }
    ck_assert(r.job.lacking == std::vector<NodeName>({"n2", "n3", "n4"}));
    r.next = r.runs.give_up(r.job, r.turn());
    ck_assert_int_eq(std::get<home::Finished>(r.next).wait_status, 126 << 8);
    // A job whose program is lacking nowhere does not give up.
    HomeJob has = HomeRig::waiting();
    ck_assert(is<home::Nothing>(r.runs.give_up(has, r.turn())));
    ck_assert_text(r.text(), "!");
}
END_TEST

START_TEST(what_the_owner_says_of_a_running_job_is_one_thing_each) {
    Run r;
    ck_assert(is<home::Nothing>(r.hears(GuestState::running).next));
    ck_assert_text(r.text(), "");
    ck_assert(is<home::Gone>(r.hears(GuestState::unknown).next));
    ck_assert(is<home::Gone>(r.hears(GuestState::failed).next));
    ck_assert(is<home::Killed>(r.hears(GuestState::killed, "oom").next));
    ck_assert(is<home::Frozen>(r.hears(GuestState::frozen).next));
    ck_assert(is<home::Finished>(r.hears(GuestState::exited).next));
    GuestEvent stands = HomeRig::event(GuestState::dumping);
    stands.in_place = true;
    stands.cannot_move = "a queue is open";
    ck_assert_text(std::get<home::Standing>(r.hears(stands).next).cannot_move, "a queue is open");
    r.hears(GuestState::shipped);  // of a move that was given up
    ck_assert_text(r.text(), "resume n2.1");
    ck_assert(r.job.running_since == Nanos::never());
}
END_TEST

START_TEST(a_job_that_must_be_able_to_move_is_ended_at_launch_only) {
    Run at_launch;
    at_launch.job.spec.must_migrate = true;
    at_launch.cannot_move("a queue is open");
    ck_assert_text(at_launch.text(), "kill n2.1");
    ck_assert(!at_launch.runs.refused(at_launch.job).empty());
    Run later;
    later.job.spec.must_migrate = true;
    later.now += s(11);
    later.cannot_move("a queue is open");
    ck_assert_text(later.text(), "");
    ck_assert_text(later.said(),
                   "a queue is open (where its owner wants the machine back, it is stopped in "
                   "memory, and ended if he says so)\n");
    ck_assert(later.runs.refused(later.job).empty());
    later.cannot_move("");
    ck_assert_text(later.said(), "can move again\n");
}
END_TEST

START_TEST(a_freeze_that_failed_lets_the_job_run_on_and_counts_for_its_owner) {
    Run r;
    r.expels.wanted(r.job, r.now);
    (void)r.expels.ripe(r.job, r.now + s(4));
    r.runs.freeze(r.job, false, r.turn());
    ck_assert_text(r.text(), "P freeze n2.1");
    r.hears(GuestState::running);  // it never arrived
    ck_assert_text(r.text(), "freeze n2.1");
    r.hears(GuestState::running, "CRIU failed");
    ck_assert_text(r.text(), "!n2 P");
    ck_assert(is<home::Steady>(r.next) && r.job.phase == JobPhase::running);
    r.expels.arm(r.job, r.now);
    ck_assert(r.expels.due(r.job) == r.now + s(8));
}
END_TEST

START_TEST(what_stands_in_place_is_told_once_and_freezes_when_it_can) {
    Run r;
    r.runs.stands(r.job, "a queue is open", r.turn());
    ck_assert_text(r.text(), "P");
    ck_assert_text(r.said(), "stopped on n2, where it stays: a queue is open\n");
    ck_assert(r.job.in_place && r.job.phase == JobPhase::frozen);
    r.runs.stands(r.job, "a queue is open", r.turn());
    ck_assert_text(r.said(), "");
    GuestEvent e = HomeRig::event(GuestState::dumping);
    e.in_place = true;
    e.cannot_move = "a queue is open";
    ck_assert(is<home::Nothing>(r.hears(e).next));
    e.cannot_move = "a file is open";
    ck_assert(is<home::Standing>(r.hears(e).next));
    ck_assert(is<home::Frozen>(r.hears(GuestState::frozen).next) && !r.job.in_place);
    ck_assert_text(r.runs.cannot_move(r.job), "");
    Run on;
    on.runs.stands(on.job, "why", on.turn());
    on.runs.go_on_in_place(on.job, on.turn());
    ck_assert_text(on.text(), "P resume n2.1");
    ck_assert(!on.job.in_place && on.job.phase == JobPhase::running);
}
END_TEST

START_TEST(what_goes_on_and_is_stopped_for_the_owner_of_its_node_is_not_paid_for) {
    for (const bool stopped : {false, true}) {
        Run r;
        r.runs.stands(r.job, "a queue is open", r.turn());
        GuestEvent e = HomeRig::event(GuestState::running);
        if (stopped) e.paused = Cause(CauseCode::owner_uses, "its owner uses node n2");
        r.hears(e);
        ck_assert(r.job.phase == JobPhase::running);
        ck_assert((r.job.running_since == Nanos::never()) == stopped);
    }
}
END_TEST

// Between the word to freeze it and its dump it runs on, and its owner may stop it.
START_TEST(what_is_stopped_while_a_slow_freeze_is_awaited_is_not_paid_for) {
    Run r;
    r.runs.freeze(r.job, false, r.turn());
    r.text();
    r.now += s(5);
    GuestEvent e = HomeRig::event(GuestState::running);
    e.paused = Cause(CauseCode::owner_uses, "its owner uses node n2");
    r.hears(e);
    ck_assert_text(r.text(), "p freeze n2.1");
    ck_assert_int_eq(r.reports(), 1);
    r.now += s(20);
    ck_assert(HomeClock::run_time(r.job, r.now) == s(5));
    r.hears(e);
    ck_assert_text(r.text(), "freeze n2.1");
    ck_assert_int_eq(r.reports(), 0);  // no news
    e.paused = {};
    r.hears(e);
    ck_assert_int_eq(r.reports(), 1);
    r.now += s(2);
    ck_assert(HomeClock::run_time(r.job, r.now) == s(7));
}
END_TEST

// -------------------------------------------------------------------------------------------------
// reports

START_TEST(a_report_says_what_the_machines_know_beside_the_record) {
    Run r;
    HomeClock clock;
    const HomeGroups groups;
    const HomeGangs gangs;
    const HomeRecords records("n1", {});
    const HomeEvacuations evacuations({"n1", s(1), s(900)});
    const HomeDelays delays;
    HomeOrders orders;
    const HomeReports reports(r.runs, r.checkpoints, clock, groups, gangs, records, evacuations,
                              delays, orders);
    GuestEvent e = HomeRig::event(GuestState::running);
    e.pid = 77;
    e.cannot_move = "a queue is open";
    r.runs.note(r.job, e);
    r.hears(e);
    r.checkpoints.failed(r.job, "the disk is full", r.turn());
    r.now += s(5);
    JobReport report = reports.report_of(r.job, r.now);
    ck_assert_int_eq(report.pid, 77);
    ck_assert_text(report.cannot_move, "a queue is open");
    ck_assert_text(report.checkpoint_trouble, "the disk is full");
    ck_assert(report.stats.run_time == s(5) && !report.stands);
    // Frozen it has no process, and lies in an image.
    r.job.running_since = Nanos::never();
    ck_assert(reports.report_of(r.job, r.now).stands);
    r.job.phase = JobPhase::frozen;
    report = reports.report_of(r.job, r.now);
    ck_assert_int_eq(report.pid, 0);
    ck_assert_text(report.cannot_move, "");
    ck_assert(!report.stands);
    r.job.in_place = true;
    ck_assert_text(reports.report_of(r.job, r.now).cannot_move, "a queue is open");
    // Another epoch's process is not this one's.
    r.job.phase = JobPhase::running;
    r.job.epoch = {2};
    ck_assert_int_eq(reports.report_of(r.job, r.now).pid, 0);
}
END_TEST

// The market keeps a job from such a node as long as its home names it, and asks nothing meanwhile.
START_TEST(a_node_that_refuses_its_user_is_named_for_a_while_which_doubles_and_may_then_be_tried) {
    Run r;
    r.job.phase = JobPhase::frozen;
    const auto named = [&] { return r.runs.no_user(r.job, r.now).size(); };
    Nanos pause = s(30);
    for (int n = 0; n < 8; ++n, pause = std::min(pause + pause, s(600))) {
        r.runs.refuses_user(r.job, "n2", "its owner takes no user ada", r.now);
        r.runs.refuses_user(r.job, "n3", "its map has no user ada", r.now);
        ck_assert_uint_eq(named(), 2);
        ck_assert_text(r.runs.why_no_user(r.job, "n2"), "its owner takes no user ada");
        ck_assert_text(r.runs.why_no_user(r.job, "n3"), "its map has no user ada");
        // Each is drawn from the upper half of its span.
        ck_assert(r.runs.due(r.job) >= r.now + Nanos{pause.ns / 2});
        ck_assert(r.runs.due(r.job) <= r.now + pause);
        r.out.clear();
        r.now += pause;
        r.runs.overdue(r.job, r.turn());
        ck_assert_int_eq(r.reports(), 1);
        ck_assert_uint_eq(named(), 0);
        ck_assert(r.runs.due(r.job) == Nanos::never());
    }
}
END_TEST

UNIT_SUITE(home_moves_alone, nothing_is_shipped_before_both_ends_are_ready,
           the_decision_is_durable_before_the_source_is_told_to_die_and_before_the_copy_runs,
           a_source_that_stands_for_this_move_need_not_die_first,
           before_the_decision_any_failure_lets_the_source_go_on_and_ends_the_candidate,
           after_the_decision_the_candidates_loss_makes_the_source_the_job_again,
           what_ended_after_it_was_released_has_arrived_and_says_more,
           steps_that_are_overdue_are_given_up_before_the_decision_and_asked_again_after_it,
           a_restart_gives_up_what_was_not_decided_and_goes_on_with_what_was,
           the_pause_is_from_the_freeze_to_the_word_that_it_runs);
UNIT_SUITE(home_runs, a_start_is_on_disk_with_its_epoch_before_the_command,
           a_start_that_fails_leaves_the_job_waiting_and_an_orphan_to_ask_after,
           a_node_without_the_program_is_noted_and_the_kindest_status_is_the_jobs_end,
           a_node_that_refuses_its_user_is_named_for_a_while_which_doubles_and_may_then_be_tried,
           what_the_owner_says_of_a_running_job_is_one_thing_each,
           a_job_that_must_be_able_to_move_is_ended_at_launch_only,
           a_freeze_that_failed_lets_the_job_run_on_and_counts_for_its_owner,
           what_stands_in_place_is_told_once_and_freezes_when_it_can,
           what_goes_on_and_is_stopped_for_the_owner_of_its_node_is_not_paid_for,
           what_is_stopped_while_a_slow_freeze_is_awaited_is_not_paid_for);
UNIT_SUITE(home_reports, a_report_says_what_the_machines_know_beside_the_record);
