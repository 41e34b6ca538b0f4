// SPDX-License-Identifier: GPL-2.0-or-later
// The Home machine by hand: each test is a bug that the cluster simulator (tests/sim) found, or a
// rule that it relies on. Moves are in test_home_moves.cpp.
#include "tests/unit/home_bench.hpp"

using namespace souk;
using namespace souk::unit;

START_TEST(a_failed_start_waits_again_and_is_dropped) {
    Bench b;
    b.submit().run_on("n2");
    ck_assert_text(b.event("n2", 1, GuestState::failed, "off the market").text(),
                   "!n2 P drop n2.1");
    ck_assert(b.job().phase == JobPhase::waiting && b.job().orphans.size() == 1);
    ck_assert_text(b.run_on("n3").text(), "P start n3.2");
    b.event("n2", 1, GuestState::unknown);
    ck_assert(b.job().orphans.empty());
}
END_TEST

static void cannot_execute(Bench& b, const char* node, uint64_t epoch, int error) {
    GuestEvent e;
    e.id = id;
    e.epoch = {epoch};
    e.state = GuestState::failed;
    e.program_error = true;
    e.error = error;
    e.why = "no such file";
    b.h.guest_event(node, e, b.now, b.out);
}

START_TEST(a_program_that_no_node_can_execute_ends_as_in_a_shell) {
    for (const int error : {ENOENT, EACCES}) {
        Bench b;
        b.submit().run_on("n2");
        cannot_execute(b, "n2", 1, error);
        ck_assert(b.job().phase == JobPhase::waiting);
        b.run_on("n3");
        cannot_execute(b, "n3", 2, ENOENT);
        ck_assert(b.job().lacking == (std::vector<NodeName>{"n2", "n3"}));
        b.order(Order::Kind::give_up);
        ck_assert_int_eq(b.job().wait_status, (error == EACCES ? 126 : 127) << 8);
        ck_assert_text(b.job().why, "no such file");
    }
}
END_TEST

START_TEST(a_program_that_one_node_lacks_runs_on_another) {
    Bench b;
    b.submit().run_on("n2");
    cannot_execute(b, "n2", 1, ENOENT);
    b.run_on("n3").event("n3", 2, GuestState::running);
    ck_assert(b.job().phase == JobPhase::running && b.job().lacking == std::vector<NodeName>{"n2"});
    b.order(Order::Kind::give_up);  // it is too late for that
    ck_assert(b.job().phase == JobPhase::running);
}
END_TEST

START_TEST(a_cancel_works_in_every_phase) {
    Bench waiting;
    waiting.submit().cancel();
    ck_assert(waiting.job().phase == JobPhase::finished && waiting.job().wait_status == 9);
    Bench starting;
    ck_assert_text(starting.submit().run_on("n2").cancel().text(), "P kill n2.1");
    // and not: start
    ck_assert_text(starting.event("n2", 1, GuestState::unknown).text(), "kill n2.1");
    ck_assert_text(starting.event("n2", 1, GuestState::failed).text(), "P drop n2.1");
    Bench moving;
    ck_assert_text(moving.shipping().cancel().text(), "P P kill n3.2 resume n2.1 kill n2.1");
    ck_assert_int_eq(moving.job().stats.failed_moves, 0);  // nobody failed
    ck_assert_text(moving.event("n2", 1, GuestState::killed).text(), "P drop n2.1");
    ck_assert_text(moving.job().why, "cancelled");
    Bench decided;
    ck_assert_text(decided.committed().cancel().text(), "P");
    decided.event("n2", 1, GuestState::frozen);
    ck_assert_text(decided.event("n3", 2, GuestState::running).text(), "P drop n2.1 kill n3.2");
    Bench freezing;
    ck_assert_text(freezing.running().suspend().cancel().text(), "P kill n2.1");
    Bench frozen;
    ck_assert_text(frozen.frozen().cancel().text(), "P kill n2.1");
    ck_assert_text(frozen.event("n2", 1, GuestState::killed).text(), "P drop n2.1");
}
END_TEST

START_TEST(a_cancel_cut_off_by_a_crash_is_finished_at_the_restart) {
    Bench b;
    b.submit();
    HomeJob record = b.job();
    record.cancelled = true;
    Bench c;
    c.h.load(record);
    c.h.restarted(c.now, c.out);
    ck_assert(c.job().phase == JobPhase::finished);
}
END_TEST

START_TEST(a_restart_goes_back_before_the_decision_and_on_after_it) {
    Bench before;
    before.shipping();
    const Bench b = before.again();
    ck_assert_text(b.text(), "P kill n3.2 resume n2.1");
    ck_assert(b.job().phase == JobPhase::running && b.job().last_epoch == Epoch{2});
    Bench after;
    after.committed();
    Bench c = after.again();
    ck_assert_text(c.text(), "");
    ck_assert_text(c.up("n2").text(), "commit n2.1");
    ck_assert_text(c.event("n2", 1, GuestState::killed).text(), "P release n3.2");
}
END_TEST

START_TEST(an_epoch_is_never_used_again_after_a_failure) {
    Bench b;
    b.running();
    for (uint64_t epoch = 2; epoch < 6; ++epoch) {
        ck_assert_text(b.run_on("n3").text(),
                       "P prepare n3." + std::to_string(epoch) + " prepare_dump n2.1");
        b.event("n3", epoch, GuestState::failed, "no room");
    }
}
END_TEST

START_TEST(the_market_hears_no_failure_of_an_order_that_a_newer_one_has_overtaken) {
    Bench last;
    last.running().run_on("n3").event("n3", 2, GuestState::failed, "no room");
    ck_assert(last.text().find("!n3") != std::string::npos);
    // It would take it for that of the freeze, which is still to come.
    Bench b;
    b.running().run_on("n3").suspend();
    b.event("n3", 2, GuestState::failed, "no room");
    ck_assert(b.text().find('!') == std::string::npos);
    ck_assert(b.job().phase == JobPhase::freezing);
}
END_TEST

START_TEST(time_limits_give_up_before_the_decision_and_insist_after_it) {
    const Home::Limits l;
    Bench prepare;
    ck_assert_text(prepare.running().run_on("n3").wait(l.step_patience).text(),
                   "!n3 P kill n3.2 resume n2.1");
    Bench transfer;
    ck_assert_text(transfer.shipping().wait(l.transfer_patience).text(),
                   "!n3 P kill n3.2 resume n2.1");
    Bench decided;
    decided.committed();
    for (int i = 0; i < 3; ++i) ck_assert_text(decided.wait(l.step_patience).text(), "commit n2.1");
    decided.event("n2", 1, GuestState::frozen);
    for (int i = 0; i < 3; ++i) ck_assert_text(decided.wait(l.step_patience).text(), "query n3.2");
    Bench freezing;
    freezing.running().suspend().wait(l.transfer_patience);
    ck_assert_text(freezing.text(), "freeze n2.1");
    Bench starting;
    ck_assert_text(starting.submit().run_on("n2").wait(l.step_patience).text(), "query n2.1");
    Bench steady;
    steady.running();
    ck_assert(steady.h.tick(steady.now, steady.out) == Nanos::never());
}
END_TEST

START_TEST(an_expelled_job_is_frozen_if_no_order_moves_it) {
    const Home::Limits l;
    Bench b;
    b.running();
    b.h.expel("n2", {id, {1}}, b.now, b.out);
    ck_assert_text(b.wait(Nanos::from_ms(100)).text(), "");
    ck_assert_text(b.wait(l.expel_patience).text(), "P freeze n2.1");
    Bench moved;
    moved.running();
    moved.h.expel("n2", {id, {1}}, moved.now, moved.out);
    moved.run_on("n3");
    ck_assert_text(moved.wait(l.expel_patience).text(), "");
    // The move fails, and the job is still where it must not be. Before, that was forgotten.
    moved.event("n3", 2, GuestState::failed, "no room");
    ck_assert_text(moved.wait(l.expel_patience).text(), "P freeze n2.1");
}
END_TEST

START_TEST(each_freeze_of_an_expelled_job_that_fails_doubles_the_wait) {
    Bench b;
    b.running();
    Nanos wait = Home::Limits{}.expel_patience;
    for (int i = 0; i < 4; ++i) {
        b.h.expel("n2", {id, {1}}, b.now, b.out);
        ck_assert_text(b.wait(wait - Nanos{1}).text(), "");
        ck_assert_text(b.wait(Nanos{1}).text(), "P freeze n2.1");
        b.event("n2", 1, GuestState::running, "io_uring");
        wait += wait;
    }
}
END_TEST

START_TEST(an_order_in_the_middle_of_a_step_waits_for_its_end_and_only_the_newest_counts) {
    Bench b;
    b.shipping();
    ck_assert_text(b.run_on("n4").text(), "");
    ck_assert_text(b.suspend().text(), "");
    b.event("n3", 2, GuestState::held).event("n2", 1, GuestState::frozen);
    ck_assert_text(b.event("n3", 2, GuestState::running).text(), "P drop n2.1 P freeze n3.2");
}
END_TEST

START_TEST(old_orders_and_events_of_old_epochs_change_nothing) {
    Bench b;
    b.running().run_on("n3");
    Order old;
    old.id = id;
    old.seq = 1;
    old.kind = Order::Kind::suspend;
    b.out.clear();
    b.h.order(old, b.now, b.out);
    ck_assert_text(b.text(), "");
    const HomeJob before = b.job();
    b.event("n2", 7, GuestState::unknown).event("n9", 1, GuestState::unknown);
    ck_assert(b.job() == before);
    ck_assert_text(b.event("n3", 1, GuestState::running).text(), "kill n3.1");
}
END_TEST

START_TEST(signals_in_a_move_arrive_where_the_job_goes_on) {
    Bench b;
    b.shipping();
    b.out.clear();
    ck_assert(b.h.signal(id, 2, b.out).has_value());
    ck_assert_text(b.text(), "");
    b.event("n3", 2, GuestState::held).event("n2", 1, GuestState::frozen);
    ck_assert_text(b.event("n3", 2, GuestState::running).text(), "P drop n2.1 signal n3.2");
    Bench back;
    back.shipping();
    ck_assert(back.h.signal(id, 2, back.out).has_value());
    ck_assert_text(back.event("n3", 2, GuestState::failed, "no").text(),
                   "!n3 P kill n3.2 resume n2.1 signal n2.1");
    Bench ready;
    ready.running().run_on("n3");
    ready.out.clear();
    ck_assert(ready.h.signal(id, 2, ready.out).has_value());
    ck_assert_text(ready.text(), "signal n2.1");  // nothing is frozen yet
    Bench full;
    full.shipping();
    Status last;
    for (int i = 0; i < 100; ++i) last = full.h.signal(id, 2, full.out);
    ck_assert(!last.has_value());
    Bench frozen;
    frozen.frozen();
    ck_assert(!frozen.h.signal(id, 2, frozen.out).has_value());
}
END_TEST

START_TEST(a_change_of_terms_is_reported_in_any_phase) {
    Bench b;
    b.shipping();
    JobTerms terms = b.job().terms;
    terms.max_price = Money::units(7);
    b.out.clear();
    ck_assert(b.h.change(id, terms, b.now, b.out).has_value());
    ck_assert_text(b.text(), "P");
    ck_assert(std::get<JobReport>(std::get<home::ToMarketMsg>(b.out.at(1)).message).terms == terms);
    terms.cpus = 2;
    ck_assert(!b.h.change(id, terms, b.now, b.out).has_value());
    // Its node goes on to give it what it was ordered with.
    terms = b.job().terms;
    terms.memory_mb += 2'000;
    ck_assert(b.h.change(id, terms, b.now, b.out).has_value());
    terms.memory_mb -= 1;
    ck_assert(!b.h.change(id, terms, b.now, b.out).has_value());
}
END_TEST

START_TEST(a_copy_that_shows_up_is_asked_after_until_it_is_gone) {
    Bench b;
    b.running();
    ck_assert_text(b.event("n5", 9, GuestState::prepared).text(), "kill n5.9");
    ck_assert(b.h.needs_guest("n5"));
    ck_assert_text(b.up("n5").text(), "query n5.9");
    ck_assert_text(b.event("n5", 9, GuestState::failed).text(), "drop n5.9");
    b.event("n5", 9, GuestState::unknown);
    ck_assert(!b.h.needs_guest("n5"));
}
END_TEST

START_TEST(finished_jobs_are_bounded_also_when_their_nodes_do_not_answer) {
    Bench b;
    const auto finish = [&](uint64_t n, bool answers) {
        const JobId other{"n1", n};
        b.submit();
        Order o;
        o.id = other;
        o.seq = 1000 + n;
        o.node = "n2";
        b.h.order(o, b.now, b.out);
        GuestEvent e;
        e.id = other;
        e.epoch = {1};
        e.state = GuestState::exited;
        b.h.guest_event("n2", e, b.now, b.out);
        JobNote note;
        note.id = other;
        note.settled = true;
        b.h.note(note, b.now, b.out);
        e.state = GuestState::unknown;
        if (answers) b.h.guest_event("n2", e, b.now, b.out);
    };
    for (uint64_t n = 1; n <= 10; ++n) finish(n, true);
    ck_assert_uint_eq(b.h.jobs().size(), 2);
    for (uint64_t n = 11; n <= 40; ++n) finish(n, false);
    ck_assert_uint_eq(b.h.jobs().size(), 8);
}
END_TEST

START_TEST(a_lost_job_does_not_look_like_success) {
    Bench b;
    b.running().event("n2", 1, GuestState::unknown);
    ck_assert(b.job().phase == JobPhase::finished && b.job().wait_status == 9);
    ck_assert_text(b.job().why, "node n2 has lost it");
}
END_TEST

START_TEST(only_what_never_left_is_taken_back) {
    Bench b;
    b.submit().run_on("n2");
    const GuestCommand start = std::get<home::ToGuest>(b.out.back()).command;
    b.out.clear();
    b.h.undelivered("n2", start, b.now, b.out);
    ck_assert(b.job().phase == JobPhase::waiting);
    ck_assert_text(b.run_on("n3").text(), "P start n3.2");
    b.out.clear();
    b.h.undelivered("n2", start, b.now, b.out);  // of an old epoch
    ck_assert_text(b.text(), "");
    ck_assert(b.job().phase == JobPhase::starting);
    // Also to the node where it starts now; and one to another node than that.
    Bench again;
    again.submit().run_on("n2");
    const GuestCommand first = std::get<home::ToGuest>(again.out.back()).command;
    again.h.undelivered("n2", first, again.now, again.out);
    again.run_on("n2");
    GuestCommand second = std::get<home::ToGuest>(again.out.back()).command;
    again.out.clear();
    again.h.undelivered("n2", first, again.now, again.out);
    again.h.undelivered("n3", second, again.now, again.out);
    ck_assert_text(again.text(), "");
    ck_assert(again.job().phase == JobPhase::starting);
}
END_TEST

START_TEST(no_two_jobs_have_an_address_at_a_time_and_one_that_is_given_back_rests) {
    Home::Limits limits;
    limits.addresses = *parse_ipv4_range("10.79.64.64/29");  // six to give
    Home h("n1", limits);
    home::Outputs out;
    Submission s;
    s.spec.launch.argv = {"/bin/job"};
    s.spec.address = *parse_ipv4("1.2.3.4");  // not for the submitter to say
    s.terms.max_price = Money::units(1);
    const auto submit = [&](NetMode net) {
        s.spec.net = net;
        const auto job = h.submit(s, {}, out);
        return job ? h.jobs().at(job->seq).spec.address : Ipv4{1};
    };
    ck_assert(!submit(NetMode::host));
    std::set<Ipv4> given;
    for (int i = 0; i < 6; ++i) {
        const Ipv4 a = submit(NetMode::own);
        ck_assert_msg(limits.addresses->contains(a) && given.insert(a).second, "%s",
                      a.text().c_str());
    }
    ck_assert(!given.contains(limits.addresses->first) &&
              !given.contains(*parse_ipv4("10.79.64.71")));
    ck_assert_text(h.submit(s, {}, out).error().message,
                   "all 6 addresses of this node are in use by jobs; wait until one is done");
    ck_assert(h.cancel({"n1", 4}, {}, out).has_value() && h.cancel({"n1", 5}, {}, out).has_value());
    const Ipv4 last = h.jobs().at(5).spec.address;
    ck_assert(submit(NetMode::own) != last && submit(NetMode::own) == last);
    Home none("n2", {});
    ck_assert(
        none.submit(s, {}, out).error().message.starts_with("this node has no addresses for jobs"));
}
END_TEST

START_TEST(a_job_whose_record_cannot_be_read_stays_as_it_is_and_its_number_is_not_used_again) {
    Bench b;
    b.h.set_aside(7);
    b.submit();
    ck_assert(b.h.find({"n1", 8}) != nullptr);
    GuestEvent e;
    e.id = {"n1", 7};
    e.epoch = {3};
    for (const GuestState state : {GuestState::running, GuestState::frozen, GuestState::unknown}) {
        e.state = state;
        b.out.clear();
        b.h.guest_event("n2", e, b.now, b.out);
        ck_assert_text(b.text(), "");  // it is not ended, as a job that is not known is
    }
    Order o;
    o.id = e.id;
    o.seq = 5;
    o.kind = Order::Kind::run;
    o.node = "n3";
    b.out.clear();
    b.h.order(o, b.now, b.out);
    ck_assert_text(b.text(), "!n3");
    b.out.clear();
    b.h.market_up(b.now, b.out);
    ck_assert_uint_eq(b.out.size(), 1);  // the other job alone is reported
}
END_TEST

START_TEST(what_a_node_claims_is_taken_for_no_more_than_can_be) {
    Bench b;
    b.running();
    const auto says = [&](GuestState state, int64_t cpu, int64_t image) {
        GuestEvent e;
        e.id = id;
        e.epoch = {1};
        e.state = state;
        e.cpu_time = {cpu};
        e.image_bytes = image;
        b.out.clear();
        b.h.guest_event("n2", e, b.now, b.out);
    };
    const auto used = [&] { return b.job().stats.cpu_time; };
    b.now += Nanos::from_s(5);
    says(GuestState::running, 4'000'000'000, 0);
    ck_assert(used() == Nanos::from_s(4));
    for (int i = 0; i < 10; ++i) {  // less than before: its node counts anew
        says(GuestState::running, 1'000'000'000'000'000'000, 0);
        says(GuestState::running, 999'999'999'999'999'999, 0);
    }
    ck_assert(used() <= Nanos::from_s(15));  // one CPU, since it began, and a little
    for (int i = 0; i < 10; ++i) says(GuestState::running, used().ns - i, 0);
    ck_assert(used() <= Nanos::from_s(15));
    b.now += Nanos::from_s(100);
    says(GuestState::running, used().ns + 50'000'000'000, 0);
    ck_assert(used() >= Nanos::from_s(50) && used() <= Nanos::from_s(115));
    b.suspend();
    says(GuestState::frozen, 0, int64_t{1} << 60);
    ck_assert(b.job().phase == JobPhase::frozen);
    ck_assert_int_le(b.job().stats.image_bytes, int64_t{1} << 44);
    const JobReport* const report = b.reported();
    ck_assert(report && report->stats.image_bytes == b.job().stats.image_bytes);
}
END_TEST

UNIT_SUITE(home, a_job_whose_record_cannot_be_read_stays_as_it_is_and_its_number_is_not_used_again,
           what_a_node_claims_is_taken_for_no_more_than_can_be,
           no_two_jobs_have_an_address_at_a_time_and_one_that_is_given_back_rests,
           a_failed_start_waits_again_and_is_dropped,
           the_market_hears_no_failure_of_an_order_that_a_newer_one_has_overtaken,
           a_program_that_no_node_can_execute_ends_as_in_a_shell,
           a_program_that_one_node_lacks_runs_on_another, a_cancel_works_in_every_phase,
           a_cancel_cut_off_by_a_crash_is_finished_at_the_restart,
           a_restart_goes_back_before_the_decision_and_on_after_it,
           an_epoch_is_never_used_again_after_a_failure,
           time_limits_give_up_before_the_decision_and_insist_after_it,
           an_expelled_job_is_frozen_if_no_order_moves_it,
           each_freeze_of_an_expelled_job_that_fails_doubles_the_wait,
           an_order_in_the_middle_of_a_step_waits_for_its_end_and_only_the_newest_counts,
           old_orders_and_events_of_old_epochs_change_nothing,
           signals_in_a_move_arrive_where_the_job_goes_on,
           a_change_of_terms_is_reported_in_any_phase,
           a_copy_that_shows_up_is_asked_after_until_it_is_gone,
           finished_jobs_are_bounded_also_when_their_nodes_do_not_answer,
           a_lost_job_does_not_look_like_success, only_what_never_left_is_taken_back);
