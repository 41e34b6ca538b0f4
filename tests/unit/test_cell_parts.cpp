// SPDX-License-Identifier: GPL-2.0-or-later
// The small parts of a Cell: the course of a dump, the turn of a restore, the root of a job, and
// what is known of how fast it writes.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <utility>

#include "agentd/cell/criu_stage.hpp"
#include "agentd/cell/dump_course.hpp"
#include "agentd/cell/job_root.hpp"
#include "agentd/cell/precopy_rounds.hpp"
#include "agentd/cell/restore_turn.hpp"
#include "tests/unit/loop_fixture.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {

MovePlan plan_of(MoveForm form) {
    MovePlan plan;
    plan.forecast.form = form;
    return plan;
}

START_TEST(a_dump_is_begun_five_times_more_each_after_twice_as_long) {
    DumpCourse dump;
    dump.begin(1e9);
    ck_assert(!dump.again() && !dump.needs_all_memory());
    for (int64_t ms = 10; ms <= 160; ms *= 2) {
        const auto wait = dump.as_before();
        ck_assert(wait.has_value());
        ck_assert_int_eq(wait->ns, Nanos::from_ms(ms).ns);
        ck_assert(dump.again() && !dump.needs_all_memory());
        dump.begin(dump.link_bytes_per_s());
        ck_assert(dump.take_again());
    }
    // The last of them is refused as well.
    ck_assert(!dump.as_before().has_value());
    ck_assert(!dump.again());
    dump.begin(0);  // of another move: it counts anew
    ck_assert(dump.as_before().has_value());
}
END_TEST

START_TEST(a_dump_with_all_memory_is_no_try_and_is_asked_for_once) {
    DumpCourse dump;
    dump.begin(0);
    for (int i = 0; i < 4; ++i) ck_assert(dump.as_before().has_value());
    dump.with_all_memory();
    dump.begin(0);
    ck_assert(dump.needs_all_memory());
    ck_assert(dump.take_again() && !dump.take_again());
    ck_assert(!dump.needs_all_memory());
    dump.with_all_memory();
    dump.begin(0);  // the same dump still
    (void)dump.take_again();
    ck_assert(dump.as_before().has_value());
    ck_assert(!dump.as_before().has_value());
}
END_TEST

START_TEST(the_form_of_a_dump_is_that_of_its_plan_and_the_forecast_learns_what_is_left) {
    DumpCourse dump;
    ck_assert(!dump.live());
    dump.planned(plan_of(MoveForm::post_copy), 77);
    ck_assert(dump.live() && dump.form() == MoveForm::post_copy);
    ck_assert_uint_eq(dump.forecast().dirty_expected_bytes_per_s, 77);
    dump.left_to_send(4096);
    ck_assert_uint_eq(dump.forecast().frozen_bytes, 4096);
    dump.planned(plan_of(MoveForm::stop_and_copy), 0);
    ck_assert(!dump.live());
    ck_assert_uint_eq(dump.forecast().frozen_bytes, 0);
}
END_TEST

START_TEST(why_a_dump_failed_and_that_its_image_stays_are_told_once) {
    DumpCourse dump;
    dump.wanted(true);
    ck_assert(dump.for_checkpoint());
    ck_assert_text(dump.take_trouble(), "");
    ck_assert(!dump.take_image());
    dump.fails("no room");
    dump.keeps_image();
    ck_assert_text(dump.take_trouble(), "no room");
    ck_assert_text(dump.take_trouble(), "");
    ck_assert(dump.take_image() && !dump.take_image());
    dump.wanted(false);
    ck_assert(!dump.for_checkpoint());
}
END_TEST

START_TEST(a_restore_has_its_turn_when_the_ends_of_its_stdio_are_named) {
    RestoreTurn turn;
    ck_assert(!turn.is_prepared() && !turn.has_names());
    Pipe pipe = std::move(*make_pipe());
    std::vector<Fd> ends;
    const int number = pipe.read_end.get();
    ends.push_back(std::move(pipe.read_end));
    turn.prepared(std::move(ends));
    ck_assert(turn.is_prepared());
    ck_assert_uint_eq(turn.ends().size(), 1);
    ck_assert_int_eq(turn.ends()[0], number);
    turn.named({"pipe:[1]"}, false);
    ck_assert(turn.has_names() && !turn.early() && !turn.late());
    ck_assert_text(turn.take_names()[0], "pipe:[1]");
    ck_assert(!turn.has_names());
    turn.close_ends();
    ck_assert(!turn.is_prepared());
    ck_assert_int_eq(::fcntl(number, F_GETFD), -1);
}
END_TEST

START_TEST(a_restore_is_early_or_late_or_neither) {
    RestoreTurn early, late;
    early.named({"a"}, true);
    ck_assert(early.early() && !early.late());
    late.named({"a"}, false);
    late.put_off();
    ck_assert(late.late() && !late.early() && late.has_names());
}
END_TEST

START_TEST(the_number_of_a_jobs_root_on_this_node_is_that_of_the_root_it_was_looked_up_for) {
    JobRoot root;
    ck_assert_int_eq(root.here(), 0);
    root.is(7);
    root.find({{6, 1006}, {7, 1007}});
    ck_assert_int_eq(root.here(), 1007);
    root.is(8);  // restored
    ck_assert_int_eq(root.here(), 0);
    root.find({{7, 1007}});
    ck_assert_int_eq(root.here(), 0);
    root.find({{8, 2008}});
    ck_assert_int_eq(root.here(), 2008);
}
END_TEST

START_TEST(how_fast_a_job_writes_goes_along_with_its_image_until_it_is_old) {
    TempDir image;
    DirtyRate rate;
    rate.save(image.fd.get());  // not known: nothing is said
    ck_assert_uint_eq(list_dir(image.fd.get(), ".")->size(), 0);
    DirtyRate copy;
    copy.load(image.fd.get());
    ck_assert(!copy.now().has_value());
    rate.measured({1000, 200}, Loop::now() - Nanos::from_s(1));
    rate.save(image.fd.get());
    copy.load(image.fd.get());
    ck_assert(copy.now().has_value());
    ck_assert_uint_eq(copy.now()->bytes_per_s, 1000);
    ck_assert_uint_eq(copy.now()->left_bytes, 200);
    rate.measured({1, 1}, Loop::now() - dirty_rate_age_max - Nanos::from_ms(1));
    ck_assert(!rate.now().has_value());
}
END_TEST

START_TEST(what_an_image_says_of_the_rate_is_left_alone_unless_it_makes_sense) {
    for (const char* text : {"", "1 2", "1 2 -3", "x y z", "1 2 600000000001"}) {
        TempDir image;
        OK(create_file(image.fd.get(), "dirty-rate.img", text));
        DirtyRate rate;
        rate.load(image.fd.get());
        ck_assert_msg(!rate.now().has_value(), "'%s' was taken", text);
    }
}
END_TEST

struct Source {
    Log log{{.level_max = Level::error, .program = "test_cell_parts"}};
    int pauses = 0, dropped = 0;
    bool lease_over = false, stands = true;
    PrecopyRounds rounds{JobLog(log, JobId{"n1", 1}, Epoch{1}),
                         false,
                         {.pause = [this]() -> Status {
                              if (!stands) return tl::unexpected(Error{ETIMEDOUT, "it runs"});
                              ++pauses;
                              return {};
                          },
                          .resume = [this]() -> Status {
                              if (lease_over) return tl::unexpected(Error{0, "its lease is over"});
                              --pauses;
                              return {};
                          },
                          .pids = []() -> Result<std::vector<pid_t>> {
                              return tl::unexpected(Error{0, "it has ended"});
                          },
                          .dropped = [this] { ++dropped; }}};
};

START_TEST(rounds_that_fail_let_the_job_go_on_and_say_why) {
    Source s;
    ck_assert(!s.rounds.sending() && !s.rounds.facts().has_value());
    ck_assert_ptr_null(*s.rounds.round());  // none was begun
    ck_assert_int_eq(s.pauses, 0);
    s.rounds.expect();
    s.rounds.begin(Epoch{2}, 1 << 20);
    ck_assert(s.rounds.sending());
    const auto round = s.rounds.round();
    ck_assert(!round);
    ck_assert_text(round.error().message, "it has ended");
    ck_assert_int_eq(s.pauses, 0);
    s.lease_over = true;
    ck_assert_text(s.rounds.round().error().message, "its lease is over");
    ck_assert_int_eq(s.pauses, 1);  // it stands from here on
}
END_TEST

START_TEST(a_job_that_does_not_stand_at_once_is_asked_again_but_not_for_ever) {
    Source s;
    s.rounds.begin(Epoch{2}, 1 << 20);
    s.stands = false;
    int asked = 0;
    do ck_assert(!s.rounds.round());
    while (s.rounds.late() && ++asked < 1'000);
    ck_assert(asked > 1 && asked < 1'000);
    s.stands = true;
    ck_assert_text(s.rounds.round().error().message, "it has ended");
    ck_assert(!s.rounds.late());
    ck_assert_int_eq(s.pauses, 0);
}
END_TEST

START_TEST(rounds_are_dropped_once_and_another_move_drops_those_of_the_one_before) {
    Source s;
    s.rounds.drop();
    ck_assert_int_eq(s.dropped, 0);
    s.rounds.begin(Epoch{2}, 1 << 20);
    s.rounds.drop();
    s.rounds.drop();
    ck_assert_int_eq(s.dropped, 1);
    s.rounds.begin(Epoch{3}, 1 << 20);
    s.rounds.dirty().measured({55, 5}, Loop::now());
    s.rounds.expect();
    ck_assert_int_eq(s.dropped, 2);
    ck_assert_uint_eq(s.rounds.dirty_expected(), 55);
    ck_assert(!s.rounds.list(-1)->has_value());  // nothing was sent: nothing is listed
}
END_TEST

using Stage = CriuStage::Stage;

START_TEST(a_stage_of_crius_work_follows_only_those_that_its_table_names) {
    const std::set<std::pair<Stage, Stage>> may = {
        {Stage::none, Stage::asked},        {Stage::asked, Stage::asked},
        {Stage::coming, Stage::asked},      {Stage::asked, Stage::coming},
        {Stage::none, Stage::dumping},      {Stage::asked, Stage::dumping},
        {Stage::coming, Stage::dumping},    {Stage::draining, Stage::dumping},
        {Stage::dumping, Stage::draining},  {Stage::none, Stage::undoing},
        {Stage::asked, Stage::undoing},     {Stage::coming, Stage::undoing},
        {Stage::dumping, Stage::undoing},   {Stage::draining, Stage::undoing},
        {Stage::undoing, Stage::undoing},   {Stage::none, Stage::restoring},
        {Stage::asked, Stage::restoring},   {Stage::coming, Stage::restoring},
        {Stage::loading, Stage::restoring}, {Stage::restoring, Stage::loading}};
    for (int before = 0; before < 8; ++before)
        for (int next = 0; next < 8; ++next) {
            const auto from = static_cast<Stage>(before), to = static_cast<Stage>(next);
            const bool named = to == Stage::none || may.contains({from, to});
            ck_assert_msg(CriuStage::may_follow(from, to) == named, "%d -> %d", before, next);
        }
}
END_TEST

START_TEST(the_stage_says_for_which_operation_criu_works) {
    CriuStage stage;
    ck_assert(stage.is(Stage::none) && !stage.dumps() && !stage.restores());
    for (const Stage s : {Stage::asked, Stage::coming}) {
        stage.enter(s);
        ck_assert(!stage.dumps() && !stage.restores());
    }
    for (const Stage s : {Stage::dumping, Stage::draining, Stage::undoing}) {
        stage.enter(s);
        ck_assert(stage.dumps() && !stage.restores());
    }
    stage.enter(Stage::none);
    for (const Stage s : {Stage::restoring, Stage::loading}) {
        stage.enter(s);
        ck_assert(!stage.dumps() && stage.restores());
    }
}
END_TEST

START_TEST(a_stage_that_may_not_follow_ends_the_process) {
    const pid_t child = ::fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        CriuStage stage;
        stage.enter(Stage::draining);
        ::_exit(0);
    }
    int status = 0;
    ck_assert_int_eq(::waitpid(child, &status, 0), child);
    ck_assert(WIFSIGNALED(status));
}
END_TEST

}  // namespace

UNIT_SUITE(cell_parts, a_dump_is_begun_five_times_more_each_after_twice_as_long,
           a_dump_with_all_memory_is_no_try_and_is_asked_for_once,
           the_form_of_a_dump_is_that_of_its_plan_and_the_forecast_learns_what_is_left,
           why_a_dump_failed_and_that_its_image_stays_are_told_once,
           a_restore_has_its_turn_when_the_ends_of_its_stdio_are_named,
           a_restore_is_early_or_late_or_neither,
           the_number_of_a_jobs_root_on_this_node_is_that_of_the_root_it_was_looked_up_for,
           how_fast_a_job_writes_goes_along_with_its_image_until_it_is_old,
           what_an_image_says_of_the_rate_is_left_alone_unless_it_makes_sense,
           rounds_that_fail_let_the_job_go_on_and_say_why,
           a_job_that_does_not_stand_at_once_is_asked_again_but_not_for_ever,
           rounds_are_dropped_once_and_another_move_drops_those_of_the_one_before,
           a_stage_of_crius_work_follows_only_those_that_its_table_names,
           the_stage_says_for_which_operation_criu_works,
           a_stage_that_may_not_follow_ends_the_process);

}  // namespace souk::unit
