// SPDX-License-Identifier: GPL-2.0-or-later
// The Guest machine by hand: each test is a bug that the cluster simulator (tests/sim) found, or a
// rule that it relies on.
#include "tests/unit/guest_bench.hpp"

using namespace souk;
using namespace souk::unit::guests;

START_TEST(
    a_checkpoint_lets_the_job_go_on_before_it_is_sent_and_gives_way_to_whatever_else_is_wanted) {
    const auto dumped = [] {
        Bench b;
        b.running().command(GuestVerb::checkpoint);
        ck_assert_text(b.text(), "ready_criu");
        ck_assert_text(b.criu_ready().text(), "dump_to_keep");
        ck_assert_text(b.dump_held().text(), "go_on");
        return b;
    };
    Bench b = dumped();
    ck_assert_text(b.undone().text(), "send_checkpoint >running");
    ck_assert_text(b.ended(guest::CheckpointSent{}).text(), "drop_checkpoint");
    Bench failed = dumped();
    failed.undone().ended(guest::CheckpointFailed{"cut"});
    ck_assert_text(failed.text(), "drop_checkpoint >running(cut)");
    Bench frozen = dumped();
    ck_assert_text(frozen.undone().command(GuestVerb::freeze).text(),
                   "drop_checkpoint ready_criu/disk");
    Bench at_once = dumped();
    ck_assert_text(at_once.command(GuestVerb::freeze).text(), "");
    ck_assert_text(at_once.undone().text(), "drop_checkpoint ready_criu/disk");
}
END_TEST

START_TEST(a_kept_checkpoint_is_a_frozen_job_that_never_ran_here) {
    Bench b;
    b.g.set_accepting(false, "off the market", b.out);
    ck_assert_text(b.command(GuestVerb::keep).text(), "p:starting make_place");
    b.ended(guest::CapsuleReady{});
    ck_assert_text(b.text(), ">prepared");
    b.ended(guest::ImageReceived{100, MoveForm::stop_and_copy});
    ck_assert_text(b.text(), "P:frozen >frozen");
    ck_assert_text(b.command(GuestVerb::drop).text(), "remove E >unknown");
    Bench early;
    early.command(GuestVerb::keep).ended(guest::CapsuleReady{});
    ck_assert_text(early.command(GuestVerb::kill).text(), "kill_capsule");
    ck_assert_text(early.gone().text(), "remove E >unknown");
}
END_TEST

START_TEST(a_start_is_on_disk_before_the_job_can_run) {
    Bench b;
    ck_assert_text(b.command(GuestVerb::start).text(), "p:starting create_capsule");
    b.ended(guest::CapsuleReady{});
    ck_assert_text(b.text(), "P:running start_job");
    b.ended(guest::JobStarted{});
    ck_assert_text(b.text(), ">running");
    ck_assert_text(b.exited(7 << 8).text(), ">exited");
    ck_assert_int_eq(b.g.find(key)->wait_status, 7 << 8);
    ck_assert_text(b.command(GuestVerb::drop).text(), "remove E >unknown");
    // The home is told why the job was killed, even if it ended before its start was known.
    Bench killed, early;
    killed.running().exited(9, "its limit");
    early.command(GuestVerb::start).ended(guest::CapsuleReady{});
    early.exited(9, "its limit").ended(guest::JobStarted{});
    for (const Bench* told : {&killed, &early}) {
        const auto* last = std::get_if<guest::ToHome>(&told->out.back());
        const auto* event = last ? std::get_if<GuestEvent>(&last->message) : nullptr;
        ck_assert(event && event->state == GuestState::exited && event->why == "its limit");
    }
}
END_TEST

START_TEST(a_second_start_that_comes_after_a_failed_one_is_refused) {
    // Home sent it twice; the first failed and home went on elsewhere: the second must not run the
    // job beside it.
    Bench b;
    b.command(GuestVerb::start);
    b.ended(guest::CapsuleReady{});
    b.ended(guest::JobNotStarted{2, true, "no such program"});
    ck_assert_text(b.text(), "P:starting kill_capsule");
    ck_assert_text(b.gone().text(), "remove E >failed(no such program)");
    b.command(GuestVerb::start);
    ck_assert_text(b.text(), ">failed(no such program)");
    const auto& event = std::get<GuestEvent>(std::get<guest::ToHome>(b.out.at(0)).message);
    ck_assert(event.program_error && event.error == 2);
    ck_assert_text(b.command(GuestVerb::drop).text(), ">unknown");
    ck_assert(b.g.all().empty());
}
END_TEST

START_TEST(what_is_still_being_removed_does_not_begin_anew) {
    // The answer was lost, and the home node sends the same command again. The end of the old
    // capsule must not take a new one along.
    Bench b;
    b.command(GuestVerb::start);
    b.ended(guest::CapsuleFailed{"no capsule"});
    ck_assert_text(b.text(), "remove E >failed(no capsule)");
    ck_assert_text(b.command(GuestVerb::drop).text(), ">unknown");
    ck_assert_text(b.command(GuestVerb::start).text(),
                   ">failed(what is left of its last start there is being removed)");
    b.command(GuestVerb::drop);
    b.ended(guest::Removed{});
    ck_assert_text(b.command(GuestVerb::start).text(), "p:starting create_capsule");
}
END_TEST

START_TEST(a_job_that_ends_while_it_is_killed_has_ended_also_if_its_start_was_not_told) {
    Bench b;
    b.command(GuestVerb::start);
    b.ended(guest::CapsuleReady{});
    ck_assert_text(b.command(GuestVerb::kill).text(), "kill_capsule");
    b.exited(1 << 8);
    ck_assert_text(b.gone().text(), "P:exited >exited");
    ck_assert_int_eq(b.g.find(key)->wait_status, 1 << 8);
}
END_TEST

START_TEST(a_job_killed_before_its_start_came_does_not_start) {
    Bench b;
    ck_assert_text(b.command(GuestVerb::kill).text(), ">failed(ended before it began)");
    ck_assert_text(b.command(GuestVerb::start).text(), ">failed(ended before it began)");
    b.command(GuestVerb::drop);
    ck_assert(b.g.all().empty());
}
END_TEST

START_TEST(a_refusal_by_the_owner_is_remembered_until_dropped) {
    Bench b;
    b.end([](Guest& m, guest::Outputs& o) { m.set_accepting(false, "off the market", o); });
    ck_assert_text(b.command(GuestVerb::start).text(), ">failed(off the market)");
    b.end([](Guest& m, guest::Outputs& o) { m.set_accepting(true, "", o); });
    ck_assert_text(b.command(GuestVerb::start).text(), ">failed(off the market)");
}
END_TEST

START_TEST(refusals_of_a_home_are_bounded_and_take_no_place_of_a_guest) {
    Guest g(300);
    guest::Outputs out;
    const auto say = [&](const NodeName& home, uint64_t seq, GuestVerb verb) {
        GuestCommand c;
        c.id = {home, seq};
        c.epoch = {1};
        c.verb = verb;
        out.clear();
        g.command(home, c, out);
        return g.find({{home, seq}, {1}});
    };
    for (uint64_t seq = 1; seq <= 5'000; ++seq)
        ck_assert(say("evil", seq, GuestVerb::kill)->state == GuestState::failed);
    ck_assert_uint_eq(g.all().size(), 256);
    ck_assert(g.find({{"evil", 5'000}, {1}}) && !g.find({{"evil", 4'000}, {1}}));
    // All homes together: the one that has the most makes room.
    for (int home = 0; home < 40; ++home)
        for (uint64_t seq = 1; seq <= 97; ++seq)
            (void)say("h" + std::to_string(home), seq, GuestVerb::kill);
    ck_assert_uint_eq(g.all().size(), 4'096);
    for (int home = 0; home < 40; ++home) ck_assert(g.find({{"h" + std::to_string(home), 1}, {1}}));
    for (uint64_t seq = 1; seq <= 300; ++seq)
        ck_assert(say("n1", seq, GuestVerb::start)->state == GuestState::starting);
    ck_assert(say("n1", 301, GuestVerb::start)->state == GuestState::failed);
    // A job that is dropped or goes with its home counts no more.
    (void)say("n1", 301, GuestVerb::drop);
    g.home_down("evil");
    for (int home = 0; home < 40; ++home) g.home_down("h" + std::to_string(home));
    ck_assert_uint_eq(g.all().size(), 300);
    for (uint64_t seq = 1; seq <= 256; ++seq) (void)say("evil", seq, GuestVerb::kill);
    ck_assert(g.all().size() == 556 && g.find({{"evil", 1}, {1}}));
}
END_TEST

START_TEST(only_the_home_node_is_obeyed) {
    Bench b;
    GuestCommand c;
    c.id = job;
    c.epoch = {1};
    c.verb = GuestVerb::start;
    b.g.command("n9", c, b.out);
    ck_assert(b.out.empty() && b.g.all().empty());
}
END_TEST

START_TEST(a_move_holds_the_source_until_it_is_committed) {
    Bench b;
    b.running();
    ck_assert_text(b.command(GuestVerb::prepare_dump).text(), "ready_criu");
    ck_assert_text(b.criu_ready().text(), ">dump_ready");
    ck_assert_text(b.command(GuestVerb::ship).text(), "send_precopy");
    ck_assert_text(b.sent_precopy().text(), "dump_for_move");
    ck_assert_text(b.dump_held().text(), "ship");
    b.ended(guest::Shipped{});
    ck_assert_text(b.text(), "p:shipped >shipped");
    // `shipped` on disk says as much
    ck_assert_text(b.command(GuestVerb::commit).text(), "p:frozen finish_dump");
    ck_assert_text(b.exited(9).text(), "");  // CRIU's own kill
    ck_assert_text(b.gone().text(), ">frozen");
}
END_TEST

START_TEST(a_source_that_stands_fenced_says_for_which_move_and_dies_when_it_is_dropped) {
    Bench b;
    b.running().command(GuestVerb::prepare_dump);
    b.criu_ready().command(GuestVerb::ship, 1, 2).sent_precopy();
    ck_assert_text(b.dump_held(true).text(), "ship >dumping");
    const auto held_for = [&b] {
        return std::get<GuestEvent>(std::get<guest::ToHome>(b.out.back()).message).held_for.n;
    };
    ck_assert_uint_eq(held_for(), 2);
    b.ended(guest::Shipped{});
    ck_assert_text(b.text(), "p:shipped >shipped");
    ck_assert_uint_eq(held_for(), 2);
    ck_assert_text(b.command(GuestVerb::drop).text(), "kill_capsule");
    ck_assert_text(b.gone().text(), "remove E >unknown");
    Bench c;  // or goes on
    c.running().command(GuestVerb::prepare_dump);
    c.criu_ready().command(GuestVerb::ship, 1, 2).sent_precopy();
    c.dump_held(true);
    ck_assert_text(c.command(GuestVerb::resume).text(), "undo_dump");
    ck_assert_text(c.undone().text(), ">running");
    ck_assert_uint_eq(
        std::get<GuestEvent>(std::get<guest::ToHome>(c.out.back()).message).held_for.n, 0);
    ck_assert_text(c.command(GuestVerb::drop).text(), ">running");
}
END_TEST

START_TEST(what_could_not_be_restored_is_not_frozen_to_disk) {
    Bench b;
    b.running().command(GuestVerb::prepare_dump);
    b.criu_ready().command(GuestVerb::ship, 1, 2).sent_precopy();
    b.dump_held(true);
    GuestCommand goes_on;
    goes_on.id = job;
    goes_on.epoch = {1};
    goes_on.verb = GuestVerb::resume;
    goes_on.not_restored = true;
    b.g.command("n1", goes_on, b.out);
    ck_assert_text(b.undone().text(), ">running");
    ck_assert_text(b.command(GuestVerb::freeze).text(), ">running(CRIU cannot restore it)");
}
END_TEST

START_TEST(its_end_says_whether_the_job_ran_until_then) {
    const auto went_on = [](const Bench& b) {
        for (const auto& o : b.out)
            if (const auto* to = std::get_if<guest::ToHome>(&o))
                if (const auto* e = std::get_if<GuestEvent>(&to->message)) return e->went_on;
        ck_abort_msg("nothing was told");
        return false;
    };
    Bench ran, exited, held;
    ck_assert(went_on(ran.running().gone()));
    ck_assert(went_on(exited.running().exited(9)));
    // A daemon that begins anew answers as the one before did.
    for (const auto& o : ran.out)
        if (const auto* p = std::get_if<guest::Persist>(&o)) ck_assert(p->job.went_on);
    held.running().command(GuestVerb::prepare_dump);
    held.criu_ready().command(GuestVerb::ship, 1, 2).sent_precopy();
    held.dump_held(true);
    ck_assert(!went_on(held.gone()));
}
END_TEST

START_TEST(a_held_job_whose_capsule_dies_is_its_image_if_that_is_whole) {
    Bench half, b;
    for (Bench* one : {&half, &b}) {
        one->running().command(GuestVerb::prepare_dump);
        one->criu_ready().command(GuestVerb::ship, 1, 2).sent_precopy();
        one->dump_held(true);
    }
    ck_assert_text(half.gone().text(), "P:killed >killed(its capsule ended unexpectedly)");
    b.ended(guest::Shipped{});
    ck_assert_text(b.gone().text(), "P:frozen >frozen");
    ck_assert_text(b.command(GuestVerb::resume).text(), ">frozen");
    ck_assert_text(b.command(GuestVerb::drop).text(), "remove E >unknown");
}
END_TEST

START_TEST(a_job_whose_image_was_shipped_goes_on_only_when_that_is_no_longer_on_disk) {
    // Otherwise a restart that finds no job would take the old image for it.
    Bench b;
    b.running().command(GuestVerb::prepare_dump);
    b.criu_ready().command(GuestVerb::ship).sent_precopy();
    b.dump_held();
    b.ended(guest::Shipped{});
    ck_assert_text(b.command(GuestVerb::resume).text(), "P:running undo_dump");
    ck_assert_text(b.undone().text(), ">running");
    // A commit before the transfer's end was heard of has nothing to rely on.
    Bench c;
    c.running().command(GuestVerb::prepare_dump);
    c.criu_ready().command(GuestVerb::ship).sent_precopy();
    c.dump_held();
    ck_assert_text(c.command(GuestVerb::commit).text(), "P:frozen finish_dump");
}
END_TEST

START_TEST(a_shipped_job_that_is_dead_after_a_restart_is_its_image) {
    Guest::Found killed;
    killed.capsule_alive = killed.exited = killed.image_complete = true;
    killed.wait_status = 9;
    ck_assert_text(Bench().recovered(GuestState::shipped, false, killed).text(),
                   "P:frozen kill_capsule");
    Guest::Found gone;
    gone.image_complete = true;
    ck_assert_text(Bench().recovered(GuestState::shipped, false, gone).text(), "P:frozen");
    Guest::Found went_on;  // its dump was undone, and the record is of before
    went_on.capsule_alive = went_on.job_alive = true;
    ck_assert_text(Bench().recovered(GuestState::shipped, false, went_on).text(), "P:running");
    Guest::Found ended = killed;
    ended.wait_status = 256;
    Bench b;
    b.recovered(GuestState::shipped, false, ended);
    ck_assert_text(b.text(), "P:running");
    ck_assert_text(b.exited(256).text(), ">exited");
    Guest::Found lost;
    ck_assert_text(Bench().recovered(GuestState::shipped, false, lost).text(),
                   "P:killed >killed(its capsule is gone)");
}
END_TEST

START_TEST(a_commit_for_a_job_that_is_not_held_is_refused) {
    // The job has gone on since its image was made, so killing it would lose its later work.
    Bench b;
    b.running();
    ck_assert_text(b.command(GuestVerb::commit).text(), ">running");
    b.command(GuestVerb::prepare_dump);
    b.criu_ready();
    ck_assert_text(b.command(GuestVerb::commit).text(), ">dump_ready");
}
END_TEST

START_TEST(a_freeze_that_finds_a_move_given_up_undoes_it_first) {
    // The `resume` was lost with its connection; before, the freeze was ignored for ever.
    Bench b;
    b.running().command(GuestVerb::prepare_dump);
    b.criu_ready().command(GuestVerb::ship).sent_precopy();
    b.dump_held();
    ck_assert_text(b.command(GuestVerb::freeze).text(), "undo_dump");
    ck_assert_text(b.undone().text(), "ready_criu/disk");
    ck_assert_text(b.criu_ready().text(), "dump_to_disk");
    ck_assert_text(b.command(GuestVerb::freeze).text(), "");  // again: under way
    ck_assert_text(b.dump_held().text(), "P:frozen finish_dump");
    ck_assert_text(b.gone().text(), ">frozen");
}
END_TEST

START_TEST(criu_made_ready_for_a_move_is_not_used_for_a_freeze) {
    Bench b;
    b.running().command(GuestVerb::prepare_dump);
    b.criu_ready();
    ck_assert_text(b.command(GuestVerb::freeze).text(), "undo_dump");
    ck_assert_text(b.undone().text(), "ready_criu/disk");
}
END_TEST

START_TEST(a_new_move_right_after_a_given_up_one_is_silent_until_ready) {
    // resume, prepare_dump: a `running` with the old reason in between made home give the new move
    // up as well.
    Bench b;
    b.running().command(GuestVerb::prepare_dump);
    b.criu_ready().command(GuestVerb::ship).sent_precopy();
    b.dump_held();
    b.ended(guest::ShipFailed{"cut"});
    ck_assert_text(b.text(), ">dumping(cut)");
    ck_assert_text(b.command(GuestVerb::resume).text(), "undo_dump");
    ck_assert_text(b.command(GuestVerb::prepare_dump).text(), "");
    ck_assert_text(b.undone().text(), "ready_criu");
    ck_assert_text(b.criu_ready().text(), ">dump_ready");
}
END_TEST

START_TEST(a_resume_in_the_middle_of_a_dump_waits_for_its_end) {
    Bench b;
    b.running().command(GuestVerb::prepare_dump);
    b.criu_ready().command(GuestVerb::ship).sent_precopy();
    ck_assert_text(b.command(GuestVerb::resume).text(), "");
    ck_assert_text(b.dump_held().text(), "undo_dump");
    ck_assert_text(b.undone().text(), ">running");
}
END_TEST

// The job runs as long as its memory is only sent ahead, so nothing waits for the end of that.
START_TEST(sending_memory_ahead_is_called_off_at_once_and_leaves_the_job_as_it_was) {
    const auto precopy = [](Bench& b) -> Bench& {
        b.running().command(GuestVerb::prepare_dump);
        b.criu_ready().command(GuestVerb::ship);
        ck_assert_text(b.text(), "send_precopy");
        ck_assert_text(b.command(GuestVerb::query).text(), ">dump_ready");
        return b;
    };
    Bench resumed, killed, newer, failed, ended, frozen, criu;
    ck_assert_text(precopy(resumed).command(GuestVerb::resume).text(), "undo_dump");
    ck_assert_text(resumed.sent_precopy().text(), "");
    ck_assert_text(resumed.undone().text(), ">running");
    ck_assert_text(precopy(killed).command(GuestVerb::kill).text(), "kill_capsule");
    ck_assert_text(killed.sent_precopy().text(), "");
    ck_assert_text(killed.gone().text(), "P:killed >killed");
    // Memory that was sent to another destination is of no use to this one, so the dump begins
    // anew. The same order given twice counts once.
    ck_assert_text(precopy(newer).command(GuestVerb::ship).text(), "");
    ck_assert_text(newer.command(GuestVerb::ship, 1, 3).text(), "undo_dump");
    ck_assert_text(newer.undone().text(), "ready_criu");
    ck_assert_text(newer.criu_ready().text(), "send_precopy");
    ck_assert_text(newer.sent_precopy().text(), "dump_for_move");
    precopy(failed).ended(guest::DumpFailed{"cut"});
    ck_assert_text(failed.text(), ">running(cut)");
    precopy(criu).ended(guest::CriuFailed{"it died"});
    ck_assert_text(criu.text(), ">running(it died)");
    ck_assert_text(precopy(ended).exited(3 << 8).text(), ">exited");
    ck_assert_text(ended.sent_precopy().text(), "");
    ck_assert_text(ended.command(GuestVerb::drop).text(), "remove E >unknown");
    ck_assert_text(precopy(frozen).command(GuestVerb::freeze).text(), "undo_dump");
    ck_assert_text(frozen.undone().text(), "ready_criu/disk");
}
END_TEST

START_TEST(a_kill_in_the_middle_of_a_dump_or_undo_waits_for_its_end) {
    Bench b;
    b.running().command(GuestVerb::freeze);
    b.criu_ready();
    ck_assert_text(b.command(GuestVerb::kill).text(), "");
    ck_assert_text(b.dump_held().text(), "finish_dump");
    ck_assert_text(b.gone().text(), "P:killed >killed");
    Bench c;
    c.running().command(GuestVerb::prepare_dump);
    c.criu_ready().command(GuestVerb::resume);
    ck_assert_text(c.command(GuestVerb::kill).text(), "");
    ck_assert_text(c.undone().text(), "kill_capsule");
}
END_TEST

START_TEST(a_failed_dump_tells_why_once_and_the_job_goes_on) {
    Bench b;
    b.running().command(GuestVerb::freeze);
    b.criu_ready();
    b.ended(guest::DumpFailed{"io_uring"});
    ck_assert_text(b.text(), ">running(io_uring)");
    ck_assert_text(b.command(GuestVerb::query).text(), ">running");
}
END_TEST

START_TEST(a_dump_that_ends_after_its_job_changes_nothing) {
    // In the past, `shipped` and `dump_failed` brought a job back that had exited or been killed.
    Bench b;
    b.running().command(GuestVerb::prepare_dump);
    b.criu_ready().command(GuestVerb::ship).sent_precopy();
    b.exited(3 << 8);
    b.ended(guest::DumpFailed{"no process"});
    ck_assert_text(b.text(), "");
    ck_assert(b.state() == GuestState::exited);
    Bench c;
    c.running().command(GuestVerb::freeze);
    c.criu_ready();
    ck_assert_text(c.gone().text(), "P:killed >killed(its capsule ended unexpectedly)");
    c.ended(guest::DumpFailed{"no process"});
    ck_assert(c.state() == GuestState::killed);
    Bench d;  // CRIU beside what has died
    d.running().command(GuestVerb::prepare_dump).gone();
    ck_assert_text(d.ended(guest::CriuFailed{"no process"}).text(), "");
    ck_assert(d.state() == GuestState::killed);
}
END_TEST

START_TEST(a_job_that_exits_before_its_start_or_release_is_told_is_not_forgotten) {
    Bench b;
    b.command(GuestVerb::start);
    b.ended(guest::CapsuleReady{});
    ck_assert_text(b.exited(0).text(), "");
    b.ended(guest::JobStarted{});
    ck_assert_text(b.text(), ">running >exited");
    Bench c;
    c.held().command(GuestVerb::release);
    ck_assert_text(c.text(), "P:held finish_restore");
    c.exited(0);
    c.ended(guest::RestoreRunning{});
    ck_assert_text(c.text(), "p:running >running >exited");
}
END_TEST

START_TEST(what_criu_kills_in_a_failed_restore_is_no_exit_of_the_job) {
    Bench b;
    b.command(GuestVerb::prepare);
    b.ended(guest::CapsuleReady{}).criu_ready();
    b.ended(guest::ImageReceived{1, MoveForm::stop_and_copy});
    ck_assert(!b.g.expects_image(key));
    ck_assert_text(b.exited(9).text(), "");
    b.ended(guest::RestoreFailed{"pids"});
    ck_assert_text(b.gone().text(), "remove E >failed(pids)");
    Bench c;
    c.held().command(GuestVerb::release);
    c.exited(9);
    c.ended(guest::RestoreFailed{"late"});
    ck_assert_text(c.text(), "P:starting kill_capsule");  // on disk: it did not run
}
END_TEST

START_TEST(an_own_end_just_before_the_kill_counts) {
    Bench b;
    b.running().command(GuestVerb::kill);
    b.exited(5 << 8);
    ck_assert_text(b.gone().text(), "P:exited >exited");
    ck_assert_int_eq(b.g.find(key)->wait_status, 5 << 8);
}
END_TEST

START_TEST(a_capsule_that_dies_in_a_release_is_judged_at_its_end) {
    Bench b;
    b.held().command(GuestVerb::release);
    ck_assert_text(b.gone().text(), "");
    b.ended(guest::RestoreRunning{});
    ck_assert_text(b.text(), "p:running >running P:killed >killed(its capsule ended unexpectedly)");
}
END_TEST

START_TEST(a_newer_ship_of_a_frozen_image_follows_the_older_one) {
    // A thaw was given up while its image was on its way; before, the next ship was ignored until
    // its time limit.
    Bench b;
    Guest::Found found;
    found.image_complete = true;
    b.recovered(GuestState::frozen, false, found);
    ck_assert_text(b.command(GuestVerb::ship, 1, 2).text(), "ship");
    ck_assert_text(b.command(GuestVerb::resume).text(), ">frozen");
    ck_assert_text(b.command(GuestVerb::ship, 1, 3).text(), "");
    b.ended(guest::ShipFailed{"cut"});
    ck_assert_text(b.text(), "ship");
    ck_assert_uint_eq(std::get<guest::Do>(b.out.at(0)).other_epoch.n, 3);
}
END_TEST

START_TEST(a_dump_found_after_a_crash_waits_for_the_home_node) {
    Guest::Found found;
    found.capsule_alive = found.job_alive = found.held_by_dump = found.image_complete = true;
    Bench b;
    ck_assert_text(b.recovered(GuestState::running, false, found).text(), "");
    ck_assert_text(b.command(GuestVerb::query).text(),
                   ">dumping(the daemon of its node ended during the dump)");
    ck_assert_text(b.command(GuestVerb::commit).text(), "P:frozen finish_dump");
    Bench c;
    c.recovered(GuestState::running, false, found);
    ck_assert_text(c.command(GuestVerb::freeze).text(), "undo_dump");
    ck_assert_text(c.undone().text(), "ready_criu/disk");
    // Half an image: it stands for itself, until the destination runs or is gone.
    found.image_complete = false;
    Bench d;
    d.recovered(GuestState::running, false, found);
    ck_assert_text(d.command(GuestVerb::commit).text(), ">retained");
    ck_assert_text(d.command(GuestVerb::drop).text(), "kill_capsule");
    // Undone and dumped again it is whole.
    Bench e;
    e.recovered(GuestState::running, false, found).command(GuestVerb::resume);
    e.undone().command(GuestVerb::prepare_dump);
    e.criu_ready().command(GuestVerb::ship).sent_precopy();
    e.dump_held();
    ck_assert_text(e.command(GuestVerb::commit).text(), "P:frozen finish_dump");
}
END_TEST

START_TEST(what_was_found_held_and_then_committed_is_a_frozen_job_as_any_other) {
    Guest::Found found;
    found.capsule_alive = found.job_alive = found.held_by_dump = found.image_complete = true;
    Bench b;
    b.recovered(GuestState::running, false, found).command(GuestVerb::commit).gone();
    ck_assert(b.state() == GuestState::frozen);
    ck_assert_text(b.command(GuestVerb::ship, 1, 3).text(), "ship");
}
END_TEST

START_TEST(a_restart_tells_what_ran_from_what_never_did) {
    const auto what = [](GuestState record, bool from_image, const Guest::Found& found) {
        Bench b;
        b.recovered(record, from_image, found);
        const std::string at_once = b.text();
        if (at_once.ends_with("kill_capsule")) return at_once + " | " + b.gone().text();
        return at_once + " | " + b.command(GuestVerb::query).text();
    };
    Guest::Found nothing, alive, exited, running;
    alive.capsule_alive = true;
    exited.exited = true;
    exited.wait_status = 9;
    running.capsule_alive = running.job_alive = true;
    ck_assert_text(what(GuestState::starting, false, nothing),
                   "kill_capsule | remove E >failed(the daemon ended before the job was started)");
    ck_assert_text(
        what(GuestState::running, false, alive),
        "P:starting kill_capsule | remove E >failed(the daemon ended before the job was started)");
    ck_assert_text(what(GuestState::running, false, nothing),
                   "P:killed >killed(its capsule is gone) | >killed(its capsule is gone)");
    ck_assert_text(what(GuestState::running, false, exited), " | >exited");
    // The end of a job counts when the capsule tells it, after the output.
    Guest::Found waits_to_tell = exited;
    waits_to_tell.capsule_alive = true;
    ck_assert_text(what(GuestState::running, false, waits_to_tell), " | >running");
    ck_assert_text(
        what(GuestState::held, true, exited),
        "P:starting kill_capsule | remove E >failed(the daemon ended while the job was restored)");
    ck_assert_text(what(GuestState::held, true, running), " | >running");
    ck_assert_text(what(GuestState::starting, true, alive),
                   "kill_capsule | remove E >failed(the daemon ended before the job was restored)");
}
END_TEST

START_TEST(a_frozen_record_without_its_image_keeps_the_job_that_stands) {
    Guest::Found found;
    found.capsule_alive = found.job_alive = found.held_by_dump = true;
    Bench b;
    b.recovered(GuestState::frozen, false, found);
    ck_assert_text(b.command(GuestVerb::resume).text(), "undo_dump");
    ck_assert_text(b.undone().text(), ">running");
}
END_TEST

START_TEST(a_home_node_that_comes_back_hears_all_of_its_jobs_and_expels) {
    // An expel that was said while the home node was away was lost before.
    Bench b;
    b.running();
    b.end([](Guest& m, guest::Outputs& o) { m.set_accepting(false, "off", o); });
    ck_assert_text(b.text(), "X");
    b.end([](Guest& m, guest::Outputs& o) { m.home_up("n1", o); });
    ck_assert_text(b.text(), ">running X");
    b.end([](Guest& m, guest::Outputs& o) { m.home_up("n2", o); });
    ck_assert_text(b.text(), "");
    // The expulsion is repeated each time that the job goes on after a dump that failed.
    b.command(GuestVerb::freeze);
    b.ended(guest::CriuFailed{"no CRIU"});
    ck_assert_text(b.text(), ">running(no CRIU) X");
}
END_TEST

START_TEST(a_candidate_that_is_killed_leaves_nothing) {
    Bench b;
    b.held();
    ck_assert_text(b.command(GuestVerb::kill).text(), "kill_capsule");
    ck_assert_text(b.gone().text(), "remove E >unknown");
}
END_TEST

START_TEST(an_image_whose_record_cannot_be_read_lies_until_its_home_ends_it) {
    Bench b;
    b.g.set_aside(key);
    for (const GuestVerb verb : {GuestVerb::query, GuestVerb::start, GuestVerb::prepare,
                                 GuestVerb::restore_here, GuestVerb::resume})
        ck_assert_text(b.command(verb).text(), "");
    ck_assert_text(b.command(GuestVerb::drop).text(), "remove E >unknown");
    ck_assert_text(b.command(GuestVerb::query).text(), ">unknown");
}
END_TEST

START_TEST(a_command_that_cannot_be_read_is_refused_for_its_job_alone) {
    Bench b;
    const auto unread = [&](const NodeName& from, const GuestKey& of) {
        b.out.clear();
        b.g.not_read(from, of, "its env is too long", b.out);
        return b.text();
    };
    ck_assert_text(unread("n1", key), ">failed(its env is too long)");
    Bench other;
    std::swap(b, other);
    b.running();
    ck_assert_text(unread("n1", key), ">running(its env is too long)");
    ck_assert_text(b.command(GuestVerb::query).text(), ">running");
    ck_assert_text(unread("n9", key), "");  // the job is not of that home
}
END_TEST

UNIT_SUITE(
    guest, an_image_whose_record_cannot_be_read_lies_until_its_home_ends_it,
    a_command_that_cannot_be_read_is_refused_for_its_job_alone,
    a_checkpoint_lets_the_job_go_on_before_it_is_sent_and_gives_way_to_whatever_else_is_wanted,
    a_kept_checkpoint_is_a_frozen_job_that_never_ran_here,
    a_start_is_on_disk_before_the_job_can_run,
    a_second_start_that_comes_after_a_failed_one_is_refused,
    what_is_still_being_removed_does_not_begin_anew,
    a_job_that_ends_while_it_is_killed_has_ended_also_if_its_start_was_not_told,
    a_job_killed_before_its_start_came_does_not_start,
    a_refusal_by_the_owner_is_remembered_until_dropped,
    refusals_of_a_home_are_bounded_and_take_no_place_of_a_guest, only_the_home_node_is_obeyed,
    a_move_holds_the_source_until_it_is_committed,
    a_source_that_stands_fenced_says_for_which_move_and_dies_when_it_is_dropped,
    what_could_not_be_restored_is_not_frozen_to_disk, its_end_says_whether_the_job_ran_until_then,
    a_held_job_whose_capsule_dies_is_its_image_if_that_is_whole,
    a_job_whose_image_was_shipped_goes_on_only_when_that_is_no_longer_on_disk,
    a_shipped_job_that_is_dead_after_a_restart_is_its_image,
    a_commit_for_a_job_that_is_not_held_is_refused,
    a_freeze_that_finds_a_move_given_up_undoes_it_first,
    criu_made_ready_for_a_move_is_not_used_for_a_freeze,
    a_new_move_right_after_a_given_up_one_is_silent_until_ready,
    a_resume_in_the_middle_of_a_dump_waits_for_its_end,
    sending_memory_ahead_is_called_off_at_once_and_leaves_the_job_as_it_was,
    a_kill_in_the_middle_of_a_dump_or_undo_waits_for_its_end,
    a_failed_dump_tells_why_once_and_the_job_goes_on,
    a_dump_that_ends_after_its_job_changes_nothing,
    a_job_that_exits_before_its_start_or_release_is_told_is_not_forgotten,
    what_criu_kills_in_a_failed_restore_is_no_exit_of_the_job,
    an_own_end_just_before_the_kill_counts, a_capsule_that_dies_in_a_release_is_judged_at_its_end,
    a_newer_ship_of_a_frozen_image_follows_the_older_one,
    a_dump_found_after_a_crash_waits_for_the_home_node,
    what_was_found_held_and_then_committed_is_a_frozen_job_as_any_other,
    a_restart_tells_what_ran_from_what_never_did,
    a_frozen_record_without_its_image_keeps_the_job_that_stands,
    a_home_node_that_comes_back_hears_all_of_its_jobs_and_expels,
    a_candidate_that_is_killed_leaves_nothing);
