// SPDX-License-Identifier: GPL-2.0-or-later
// A Home and moves: what is durable before what, and who goes on when something is lost.
#include <csignal>
#include <cstring>

#include "tests/unit/home_bench.hpp"

using namespace souk;
using namespace souk::unit;

START_TEST(a_move_is_durable_before_the_source_hears_of_it) {
    Bench b;
    ck_assert_text(b.submit().text(), "P");
    ck_assert_text(b.run_on("n2").text(), "P start n2.1");
    ck_assert_text(b.event("n2", 1, GuestState::running).text(), "p");
    ck_assert_text(b.run_on("n3").text(), "P prepare n3.2 prepare_dump n2.1");
    ck_assert_text(b.event("n3", 2, GuestState::prepared).text(), "");
    ck_assert_text(b.event("n2", 1, GuestState::dump_ready).text(), "ship n2.1");
    b.event("n2", 1, GuestState::dumping);
    b.event("n2", 1, GuestState::shipped);
    ck_assert_text(b.event("n3", 2, GuestState::held).text(), "P commit n2.1");
    ck_assert_text(b.event("n2", 1, GuestState::frozen).text(), "P release n3.2");
    ck_assert_text(b.event("n3", 2, GuestState::running).text(), "P drop n2.1");
    ck_assert(b.job().phase == JobPhase::running && b.job().at.node == "n3" &&
              b.job().stats.migrations == 1);
    ck_assert_text(b.event("n2", 1, GuestState::unknown).text(), "");
    ck_assert(b.job().orphans.empty());
}
END_TEST

START_TEST(each_end_of_a_move_between_sites_is_shown_the_ticket_of_its_own_site) {
    Bench b;
    b.running();
    const auto go = [&](const char* node, const char* ticket, const char* source) {
        Order o;
        o.id = b.job().id;
        o.seq = ++b.seq;
        o.node = node;
        o.address = "10.0.0.9:1";
        o.ticket = ticket;
        o.source_ticket = source;
        b.out.clear();
        b.h.order(o, b.now, b.out);
    };
    const auto shown = [&](GuestVerb verb) {
        for (const auto& o : b.out)
            if (const auto* g = std::get_if<home::ToGuest>(&o); g && g->command.verb == verb)
                return g->command.ticket;
        return std::string("none");
    };
    go("uni:n3", "theirs", "ours");
    ck_assert_text(shown(GuestVerb::prepare), "theirs");
    b.event("n2", 1, GuestState::dump_ready).event("uni:n3", 2, GuestState::prepared);
    ck_assert_text(shown(GuestVerb::ship), "ours");
    b.event("uni:n3", 2, GuestState::failed, "no room");
    // the next one is within the site, and has one ticket for both
    go("n4", "one", "");
    ck_assert_text(shown(GuestVerb::prepare), "one");
    b.event("n2", 1, GuestState::dump_ready).event("n4", 3, GuestState::prepared);
    ck_assert_text(shown(GuestVerb::ship), "one");
}
END_TEST

START_TEST(what_was_lost_with_a_connection_is_sent_again) {
    // Each step of a move and a freeze, when a guest is back. Before, a lost ship waited for its
    // limit, a lost freeze for ever.
    Bench b;
    b.running().run_on("n3");
    ck_assert_text(b.up("n2").text(), "prepare_dump n2.1");
    ck_assert_text(b.event("n3", 2, GuestState::unknown).text(), "prepare n3.2");
    Bench c;
    c.shipping();
    ck_assert_text(c.up("n2").text(), "query n2.1");
    ck_assert_text(c.event("n2", 1, GuestState::dump_ready).text(), "ship n2.1");
    Bench d;
    d.committed();
    ck_assert_text(d.up("n2").text(), "commit n2.1");
    ck_assert_text(d.event("n2", 1, GuestState::shipped).text(), "commit n2.1");
    d.event("n2", 1, GuestState::frozen);
    ck_assert_text(d.event("n3", 2, GuestState::held).text(), "release n3.2");
    Bench e;
    e.running().suspend();
    ck_assert_text(e.up("n2").text(), "freeze n2.1");
    ck_assert_text(e.event("n2", 1, GuestState::running).text(), "freeze n2.1");
    ck_assert_text(e.event("n2", 1, GuestState::dump_ready).text(), "freeze n2.1");
    ck_assert_text(e.event("n2", 1, GuestState::shipped).text(), "freeze n2.1");
    ck_assert_text(e.event("n2", 1, GuestState::dumping, "the daemon ended").text(), "freeze n2.1");
    ck_assert_text(e.event("n2", 1, GuestState::dumping).text(), "");
}
END_TEST

START_TEST(a_lost_ship_of_a_thaw_is_sent_again_only_if_the_image_is_still_expected) {
    Bench b;
    b.frozen().run_on("n3").event("n3", 2, GuestState::prepared);
    ck_assert_text(b.text(), "ship n2.1");
    ck_assert_text(b.event("n2", 1, GuestState::frozen).text(), "query n3.2");
    ck_assert_text(b.event("n3", 2, GuestState::starting).text(), "");  // it is restoring
    ck_assert_text(b.event("n3", 2, GuestState::prepared).text(), "ship n2.1");
}
END_TEST

START_TEST(a_thaw_where_the_image_lies_needs_no_transfer) {
    Bench b;
    b.frozen();
    ck_assert_text(b.run_on("n2").text(), "P prepare n2.2");
    ck_assert_text(b.event("n2", 2, GuestState::prepared).text(), "restore_here n2.1");
    ck_assert_text(b.event("n2", 2, GuestState::held).text(), "P release n2.2");
    ck_assert_text(b.event("n2", 2, GuestState::running).text(), "P drop n2.1");
    ck_assert_int_eq(b.job().stats.thaws, 1);
}
END_TEST

START_TEST(a_refused_image_sends_its_job_back_to_its_checkpoint_if_it_has_one) {
    const auto thaw = [](bool has_checkpoint, const char* where) {
        Bench b;
        b.frozen();
        HomeJob record = b.job();
        if (has_checkpoint) {
            record.checkpoint = {{"n1", "n1:1"}, {2}, {}, 5, {}, 0};
            record.last_epoch = {2};
        }
        Bench c;
        c.seq = b.seq;
        c.h.load(record);
        c.h.restarted(c.now, c.out);
        c.run_on(where).event(where, has_checkpoint ? 3 : 2, GuestState::prepared);
        return c;
    };
    const auto refused = [](Bench& b, const char* node, uint64_t epoch, GuestState state) {
        GuestEvent e;
        e.id = id;
        e.epoch = {epoch};
        e.state = state;
        e.why = "image file core-1.img: damaged";
        e.image_refused = true;
        b.out.clear();
        b.h.guest_event(node, e, b.now, b.out);
    };
    for (const bool has_checkpoint : {true, false}) {
        Bench there = thaw(has_checkpoint, "n3"), here = thaw(has_checkpoint, "n2");
        refused(there, "n2", 1, GuestState::frozen);
        refused(here, "n2", has_checkpoint ? 3 : 2, GuestState::failed);
        for (const Bench* b : {&there, &here}) {
            ck_assert(b->job().phase == JobPhase::frozen && b->job().step == MoveStep::none);
            ck_assert_text(b->job().at.node, has_checkpoint ? "n1" : "n2");
            ck_assert_uint_eq(b->job().epoch.n, has_checkpoint ? 2 : 1);
            ck_assert_uint_eq(b->job().stats.resumes, has_checkpoint ? 1 : 0);
            ck_assert((b->job().comment.find("refused and kept there: image file core-1.img") !=
                       std::string::npos) == has_checkpoint);
        }
    }
    // The word of another node than the one that has the image is not enough.
    Bench b = thaw(true, "n3");
    refused(b, "n3", 3, GuestState::failed);
    ck_assert(b.job().phase == JobPhase::frozen && b.job().at.node == "n2");
    ck_assert_uint_eq(b.job().epoch.n, 1);
}
END_TEST

START_TEST(a_source_that_was_not_held_takes_the_decision_back) {
    Bench b;
    b.committed();
    ck_assert_text(b.event("n2", 1, GuestState::running).text(), "!n3 P kill n3.2 resume n2.1");
    ck_assert(b.job().phase == JobPhase::running && b.job().at.node == "n2" &&
              b.job().step == MoveStep::none);
}
END_TEST

// Its agentd died within the dump, so the source ran on; then somebody killed it before its home
// had heard that. The candidate is older than the source at its end.
START_TEST(a_source_that_ran_on_and_was_killed_does_not_begin_again_as_the_candidate) {
    Bench by_pid1, by_signal, held;
    by_pid1.committed().went_on(GuestState::killed, "its capsule ended unexpectedly");
    by_signal.committed().went_on(GuestState::exited, "", SIGKILL);
    for (Bench* b : {&by_pid1, &by_signal}) {
        ck_assert(b->job().phase == JobPhase::finished && b->job().step == MoveStep::none);
        ck_assert_int_eq(b->job().wait_status, SIGKILL);
        ck_assert_ptr_nonnull(std::strstr(b->text().c_str(), "kill n3.2"));
        ck_assert_ptr_null(std::strstr(b->text().c_str(), "release"));
    }
    held.committed();
    ck_assert_text(held.event("n2", 1, GuestState::killed, "its capsule ended unexpectedly").text(),
                   "P release n3.2");
}
END_TEST

START_TEST(a_candidate_lost_after_the_decision_gives_the_source_back) {
    Bench b;
    b.committed();
    ck_assert_text(b.event("n3", 2, GuestState::failed, "restore").text(),
                   "!n3 P kill n3.2 resume n2.1");
    ck_assert(b.job().phase == JobPhase::running);
    // the commit had arrived before
    ck_assert_text(b.event("n2", 1, GuestState::frozen).text(), "P");
    ck_assert(b.job().phase == JobPhase::frozen);
    Bench c;
    c.committed().event("n2", 1, GuestState::frozen);
    ck_assert_text(c.event("n3", 2, GuestState::failed, "restore").text(),
                   "!n3 P kill n3.2 resume n2.1");
    ck_assert(c.job().phase == JobPhase::frozen && c.job().at.node == "n2");
    Bench d;  // the source stood in memory: it runs again
    d.committed().event("n2", 1, GuestState::retained);
    d.event("n3", 2, GuestState::filling);
    ck_assert_text(d.event("n3", 2, GuestState::failed, "no more pages").text(),
                   "!n3 P kill n3.2 resume n2.1");
    d.event("n2", 1, GuestState::running);
    ck_assert(d.job().phase == JobPhase::running && d.job().at.node == "n2");
}
END_TEST

START_TEST(a_source_that_only_its_home_lets_go_on_need_not_die_before_the_candidate_runs) {
    Bench b;
    b.shipping().held_for(2);
    ck_assert_text(b.event("n3", 2, GuestState::held).text(), "P release n3.2");
    ck_assert_text(b.event("n2", 1, GuestState::shipped).text(), "");
    ck_assert_text(b.event("n3", 2, GuestState::running).text(), "P drop n2.1");
    Bench c;  // the copy fails: the source was the job all along
    c.shipping().held_for(2);
    c.event("n3", 2, GuestState::held);
    ck_assert_text(c.event("n3", 2, GuestState::failed, "restore").text(),
                   "!n3 P kill n3.2 resume n2.1");
    ck_assert(c.job().phase == JobPhase::running);
    // it had not heard of it
    ck_assert_text(c.event("n2", 1, GuestState::dumping).text(), "resume n2.1");
    Bench d;  // said of another move
    d.shipping().held_for(1);
    ck_assert_text(d.event("n3", 2, GuestState::held).text(), "P commit n2.1");
    Bench e;  // and withdrawn
    e.shipping().held_for(2);
    e.event("n2", 1, GuestState::shipped);
    ck_assert_text(e.event("n3", 2, GuestState::held).text(), "P commit n2.1");
}
END_TEST

START_TEST(a_home_that_was_started_again_hears_anew_that_the_source_stands) {
    Bench b;
    b.shipping().held_for(2).event("n3", 2, GuestState::held);
    Bench again = b.again();
    ck_assert_text(again.up("n2").text(), "query n2.1");
    ck_assert_text(again.held_for(1).text(), "");
    ck_assert_text(again.held_for(2).text(), "");
    ck_assert_text(again.event("n3", 2, GuestState::failed, "restore").text(),
                   "!n3 P kill n3.2 resume n2.1");
    ck_assert(again.job().phase == JobPhase::running);
    Bench deaf = b.again();  // or does not, and takes it for an image: until it says what it is
    deaf.held_for(1).event("n3", 2, GuestState::failed, "restore");
    ck_assert(deaf.job().phase == JobPhase::frozen);
    deaf.run_on("n3");
    ck_assert_text(deaf.event("n2", 1, GuestState::shipped).text(), "!n2 P kill n3.3 resume n2.1");
    deaf.run_on("n3");
    ck_assert_text(deaf.event("n2", 1, GuestState::dump_ready).text(),
                   "!n2 P kill n3.4 resume n2.1");
    deaf.event("n2", 1, GuestState::running);
    ck_assert(deaf.job().phase == JobPhase::running);
}
END_TEST

START_TEST(a_source_that_went_on_to_its_own_end_before_it_was_to_die_is_the_job) {
    Bench b;
    b.committed();
    ck_assert_text(b.event("n2", 1, GuestState::exited, "", 3 << 8).text(),
                   "kill n3.2 P drop n2.1");
    ck_assert(b.job().phase == JobPhase::finished && b.job().wait_status == 3 << 8);
    Bench c;  // killed as it stood
    c.committed();
    ck_assert_text(c.event("n2", 1, GuestState::exited, "", 9).text(), "P release n3.2");
}
END_TEST

START_TEST(a_source_that_stood_in_memory_goes_on_also_when_its_daemon_has_died_since) {
    Bench b;
    b.committed().event("n2", 1, GuestState::retained);
    b.event("n3", 2, GuestState::failed, "no more pages came");
    ck_assert(b.job().phase == JobPhase::frozen);
    // That word may have been lost.
    ck_assert_text(b.event("n2", 1, GuestState::dumping).text(), "resume n2.1");
    ck_assert_text(b.event("n2", 1, GuestState::shipped).text(), "resume n2.1");
    ck_assert_text(
        b.event("n2", 1, GuestState::dumping, "the daemon of its node ended during the dump")
            .text(),
        "resume n2.1");
    b.event("n2", 1, GuestState::running);
    ck_assert(b.job().phase == JobPhase::running);
}
END_TEST

START_TEST(a_candidate_that_ran_and_died_is_not_run_again_from_its_image) {
    Bench b;
    b.committed()
        .event("n2", 1, GuestState::frozen)
        .event("n3", 2, GuestState::killed, "its capsule is gone");
    ck_assert(b.job().phase == JobPhase::finished);
    ck_assert_int_eq(b.job().wait_status, 9);
    ck_assert_text(b.job().why, "killed on n3: its capsule is gone");
    Bench c;
    c.committed().event("n2", 1, GuestState::frozen).event("n3", 2, GuestState::exited, "", 3 << 8);
    ck_assert(c.job().phase == JobPhase::finished && c.job().wait_status == 3 << 8 &&
              c.job().at.node == "n3");
}
END_TEST

START_TEST(a_job_killed_for_its_limit_has_not_run_to_its_own_end_and_one_that_lost_a_process_has) {
    const auto told = [](const Bench& b, home::Tell::What what) {
        for (const auto& o : b.out)
            if (const auto* t = std::get_if<home::Tell>(&o); t && t->what == what) return t->text;
        return std::string("nothing");
    };
    Bench killed;
    killed.running().event("n2", 1, GuestState::exited, "it may have 64 MB", 9);
    ck_assert(killed.job().phase == JobPhase::finished);
    ck_assert_text(killed.job().why, "it may have 64 MB");
    ck_assert_text(told(killed, home::Tell::What::finished), "it may have 64 MB");
    Bench went_on;
    went_on.running().event("n2", 1, GuestState::exited, "it may have 64 MB", 3 << 8);
    ck_assert_int_eq(went_on.job().wait_status, 3 << 8);
    ck_assert_text(went_on.job().why, "");
    ck_assert_text(told(went_on, home::Tell::What::comment), "it may have 64 MB");
}
END_TEST

START_TEST(a_source_found_frozen_ends_the_move_as_frozen) {
    // A freeze that was given up as undelivered had arrived after all.
    Bench b;
    b.running().run_on("n3");
    ck_assert_text(b.event("n2", 1, GuestState::frozen).text(), "kill n3.2 P");
    ck_assert(b.job().phase == JobPhase::frozen && b.job().step == MoveStep::none);
}
END_TEST

START_TEST(a_dump_left_over_from_a_move_given_up_is_made_ready_again) {
    Bench b;
    b.running().run_on("n3");
    ck_assert_text(b.event("n2", 1, GuestState::shipped).text(), "prepare_dump n2.1");
    ck_assert(b.job().step == MoveStep::prepare);
    Bench c;
    c.running();
    ck_assert_text(c.event("n2", 1, GuestState::shipped).text(), "resume n2.1");
}
END_TEST

UNIT_SUITE(home_moves, a_move_is_durable_before_the_source_hears_of_it,
           each_end_of_a_move_between_sites_is_shown_the_ticket_of_its_own_site,
           what_was_lost_with_a_connection_is_sent_again,
           a_lost_ship_of_a_thaw_is_sent_again_only_if_the_image_is_still_expected,
           a_thaw_where_the_image_lies_needs_no_transfer,
           a_refused_image_sends_its_job_back_to_its_checkpoint_if_it_has_one,
           a_source_that_was_not_held_takes_the_decision_back,
           a_source_that_ran_on_and_was_killed_does_not_begin_again_as_the_candidate,
           a_candidate_lost_after_the_decision_gives_the_source_back,
           a_source_that_only_its_home_lets_go_on_need_not_die_before_the_candidate_runs,
           a_home_that_was_started_again_hears_anew_that_the_source_stands,
           a_source_that_went_on_to_its_own_end_before_it_was_to_die_is_the_job,
           a_source_that_stood_in_memory_goes_on_also_when_its_daemon_has_died_since,
           a_candidate_that_ran_and_died_is_not_run_again_from_its_image,
           a_job_killed_for_its_limit_has_not_run_to_its_own_end_and_one_that_lost_a_process_has,
           a_source_found_frozen_ends_the_move_as_frozen,
           a_dump_left_over_from_a_move_given_up_is_made_ready_again);
