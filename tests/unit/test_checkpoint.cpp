// SPDX-License-Identifier: GPL-2.0-or-later
// Checkpoints at home: when one is made, where the last one lies, what becomes of a job whose node
// is lost.
#include "tests/unit/home_bench.hpp"

using namespace souk;
using namespace souk::unit;

namespace {
// Runs on n2 as epoch 1; due for a checkpoint every minute.
Bench saving_job(bool restart = false, bool tty = false, bool snapshot = false) {
    Bench b;
    Submission s;
    s.spec.launch.argv = {"/bin/job"};
    s.spec.checkpoint_every = Nanos::from_s(60);
    s.spec.restart = restart;
    s.spec.launch.tty = tty;
    s.spec.files_snapshot = snapshot;
    s.terms.max_price = Money::units(1);
    ck_assert(b.h.submit(s, b.now, b.out).has_value());
    b.run_on("n2").event("n2", 1, GuestState::running);
    return b;
}
Bench& kept(Bench& b, uint64_t epoch, uint64_t out_end, uint64_t err_end, uint64_t in_end) {
    GuestEvent e;
    e.id = id;
    e.epoch = {epoch};
    e.state = GuestState::frozen;
    e.output_end[0] = out_end;
    e.output_end[1] = err_end;
    e.input_end = in_end;
    e.heard = Nanos::from_s(1'000);
    e.image_bytes = 77;
    b.out.clear();
    b.h.guest_event("n1", e, b.now, b.out);
    return b;
}
Bench& lost(Bench& b, const char* node) {
    b.out.clear();
    b.h.node_lost(node, b.now, b.out);
    return b;
}
// With a checkpoint of epoch 2.
Bench saved(bool restart = false, bool tty = false, bool snapshot = false) {
    Bench b = saving_job(restart, tty, snapshot);
    b.wait(Nanos::from_s(60)).event("n1", 2, GuestState::prepared);
    kept(b, 2, 100, 10, 5);
    return b;
}
}  // namespace

START_TEST(a_checkpoint_is_dumped_when_its_place_is_there_and_its_epoch_is_on_disk) {
    Bench b = saving_job();
    ck_assert_text(b.wait(Nanos::from_s(59)).text(), "");
    ck_assert_text(b.wait(Nanos::from_s(1)).text(), "P keep n1.2");
    ck_assert_uint_eq(b.again().job().last_epoch.n, 2);
    ck_assert_text(b.event("n1", 2, GuestState::prepared).text(), "checkpoint n2.1");
    ck_assert_text(b.event("n2", 1, GuestState::dumping).text(), "");
    ck_assert(b.job().phase == JobPhase::running);
    ck_assert_text(b.event("n2", 1, GuestState::running).text(), "p");
    ck_assert_text(kept(b, 2, 100, 10, 5).text(), "P");
    ck_assert(b.job().checkpoint.epoch == Epoch{2} && b.job().checkpoint.bytes == 77);
    ck_assert_text(b.wait(Nanos::from_s(60)).text(), "P keep n1.3");
}
END_TEST

START_TEST(the_last_checkpoint_stays_until_the_next_is_whole) {
    Bench b = saved();
    b.wait(Nanos::from_s(60)).event("n1", 3, GuestState::prepared);
    ck_assert(b.job().checkpoint.epoch == Epoch{2});
    ck_assert_text(b.event("n1", 3, GuestState::failed, "its disk is full").text(), "kill n1.3 P");
    ck_assert(b.job().checkpoint.epoch == Epoch{2});
    b.wait(Nanos::from_s(60)).event("n1", 4, GuestState::prepared);
    ck_assert_text(kept(b, 4, 100, 10, 5).text(), "drop n1.2 P");
    ck_assert(b.job().checkpoint.epoch == Epoch{4});
}
END_TEST

START_TEST(a_checkpoint_under_way_gives_way_to_an_order) {
    Bench b = saving_job();
    b.wait(Nanos::from_s(60)).event("n1", 2, GuestState::prepared);
    ck_assert_text(b.suspend().text(), "kill n1.2 P freeze n2.1");
    ck_assert_uint_eq(b.job().saving.epoch.n, 0);
}
END_TEST

START_TEST(a_job_whose_node_is_lost_is_its_last_checkpoint_and_that_stays_while_it_runs_elsewhere) {
    Bench b = saved();
    ck_assert_text(lost(b, "n2").text(), "P kill n2.1");
    ck_assert(b.job().phase == JobPhase::frozen && b.job().at.node == "n1" &&
              b.job().epoch == Epoch{2});
    ck_assert_uint_eq(b.job().stats.resumes, 1);
    b.run_on("n3").event("n3", 3, GuestState::prepared);
    ck_assert_text(b.text(), "ship n1.2");
    b.event("n3", 3, GuestState::held);
    ck_assert_text(b.event("n3", 3, GuestState::running).text(), "P");  // and no drop
    ck_assert(b.job().at.node == "n3" && b.job().checkpoint.epoch == Epoch{2});
    // The copy of before comes back.
    ck_assert_text(b.event("n2", 1, GuestState::running).text(), "kill n2.1");
    lost(b, "n3");
    ck_assert(b.job().phase == JobPhase::frozen && b.job().epoch == Epoch{2});
    ck_assert_uint_eq(b.job().stats.resumes, 2);
}
END_TEST

START_TEST(a_job_without_a_checkpoint_begins_anew_only_if_its_user_said_so) {
    Bench b = saving_job();
    lost(b, "n2");
    ck_assert(b.job().phase == JobPhase::finished);
    ck_assert_text(b.job().why, "node n2 is lost, and it had no checkpoint");
    Bench again = saving_job(true);
    lost(again, "n2");
    ck_assert(again.job().phase == JobPhase::waiting && again.job().at.node.empty());
    ck_assert_text(again.run_on("n3").text(), "P start n3.2");
}
END_TEST

START_TEST(a_job_that_its_own_node_says_is_gone_goes_back_too) {
    Bench b = saved();
    b.event("n2", 1, GuestState::killed, "its capsule is gone");
    ck_assert(b.job().phase == JobPhase::frozen && b.job().epoch == Epoch{2});
    Bench c = saved();
    c.cancel().event("n2", 1, GuestState::killed);
    ck_assert(c.job().phase == JobPhase::finished);
    ck_assert_text(c.job().why, "cancelled");
}
END_TEST

START_TEST(what_it_wrote_after_its_checkpoint_stays_and_what_it_writes_then_comes_behind_the_mark) {
    Bench b = saved();
    lost(b, "n2");
    ck_assert(b.job().splice.due);
    const uint64_t ends[2] = {150, 10};
    b.out.clear();
    b.h.spliced(id, ends, 9, {}, {}, b.out);
    ck_assert_text(b.text(), "P");
    const Splice& s = b.job().splice;
    ck_assert(!s.due && s.at == 10);
    ck_assert_uint_eq(s.shift[0], 50);             // byte 100 of the capsule is byte 150 here
    ck_assert_uint_eq(s.shift[1], s.text.size());  // behind the mark
    ck_assert_uint_eq(s.input_shift, 4);
    ck_assert(s.text.find("50 bytes of stdout and 0 of stderr") != std::string::npos);
    // Once more to the same checkpoint: 30 bytes of stdout have come since, and 5 of stderr.
    b.run_on("n3").event("n3", 3, GuestState::prepared);
    b.event("n3", 3, GuestState::held).event("n3", 3, GuestState::running);
    lost(b, "n3");
    const uint64_t first = s.text.size(), then[2] = {180, 10 + first + 5};
    b.h.spliced(id, then, 9, {}, {}, b.out);
    ck_assert_uint_eq(s.shift[0], 80);
    ck_assert_uint_eq(s.shift[1], then[1] + s.text.size() - 10);
    ck_assert(s.text.find("30 bytes of stdout and 5 of stderr") != std::string::npos);
}
END_TEST

START_TEST(output_that_had_not_come_before_the_node_was_lost_comes_with_the_checkpoint) {
    Bench b = saved(false, true);
    lost(b, "n2");
    const uint64_t ends[2] = {60, 0};  // of 100 that it had written by then
    b.h.spliced(id, ends, 0, {}, {}, b.out);
    const Splice& s = b.job().splice;
    ck_assert(s.at == 60 && s.text.starts_with("\r\n"));
    ck_assert_uint_eq(s.shift[0], s.text.size());
}
END_TEST

START_TEST(a_home_that_dies_before_it_knows_where_the_output_goes_on_asks_again) {
    Bench b = saved();
    lost(b, "n2");
    const Bench again = b.again();
    const auto back = [](const auto& o) { return std::holds_alternative<home::GoneBack>(o); };
    ck_assert(std::count_if(again.out.begin(), again.out.end(), back) == 1);
}
END_TEST

START_TEST(it_goes_on_when_its_files_are_as_they_were_and_the_mark_says_what_was_done) {
    Bench b = saved(false, false, true);
    lost(b, "n2");
    const std::string before = b.run_on("n3").text();
    ck_assert_msg(before.find("prepare") == std::string::npos, "%s", before.c_str());
    ck_assert(b.job().phase == JobPhase::frozen);
    const uint64_t ends[2] = {100, 10};
    b.out.clear();
    b.h.spliced(id, ends, 5, "2 files put back", b.now, b.out);
    ck_assert(b.text().find("prepare n3.3") != std::string::npos);
    ck_assert(b.job().phase == JobPhase::thawing && !b.job().splice.due);
    ck_assert(b.job().splice.text.find("; 2 files put back") != std::string::npos);
}
END_TEST

START_TEST(what_stands_by_an_order_is_not_written_down_and_goes_back_when_its_node_is_lost) {
    Bench b = saved();
    // One that is under way is given up for the stop.
    ck_assert_text(b.wait(Nanos::from_s(60)).text(), "P keep n1.3");
    ck_assert_text(b.stop().text(), "kill n1.3 P freeze n2.1/stand");
    b.in_place("n2", 1, "");
    ck_assert(b.job().phase == JobPhase::frozen && b.job().in_place);
    b.event("n1", 3, GuestState::killed);
    ck_assert_text(b.wait(Nanos::from_s(600)).text(), "");
    // Its memory is gone with the node: the checkpoint is the job.
    lost(b, "n2");
    ck_assert(b.job().phase == JobPhase::frozen && !b.job().in_place);
    ck_assert_text(b.job().at.node, "n1");
    ck_assert_uint_eq(b.job().epoch.n, 2);
    ck_assert(b.reported() && !b.reported()->in_place);
    // Without one it ends, as one that runs.
    Bench none;
    none.running().stop().in_place("n2", 1, "");
    lost(none, "n2");
    ck_assert(none.job().phase == JobPhase::finished);
}
END_TEST

UNIT_SUITE(checkpoint, a_checkpoint_is_dumped_when_its_place_is_there_and_its_epoch_is_on_disk,
           the_last_checkpoint_stays_until_the_next_is_whole,
           a_checkpoint_under_way_gives_way_to_an_order,
           a_job_whose_node_is_lost_is_its_last_checkpoint_and_that_stays_while_it_runs_elsewhere,
           what_stands_by_an_order_is_not_written_down_and_goes_back_when_its_node_is_lost,
           a_job_without_a_checkpoint_begins_anew_only_if_its_user_said_so,
           a_job_that_its_own_node_says_is_gone_goes_back_too,
           what_it_wrote_after_its_checkpoint_stays_and_what_it_writes_then_comes_behind_the_mark,
           output_that_had_not_come_before_the_node_was_lost_comes_with_the_checkpoint,
           a_home_that_dies_before_it_knows_where_the_output_goes_on_asks_again,
           it_goes_on_when_its_files_are_as_they_were_and_the_mark_says_what_was_done);
