// SPDX-License-Identifier: GPL-2.0-or-later
// Failures on a guest's node and findings of its home are told with the code of their cause. These
// are the codes that are rarer than those of test_causes.cpp.
#include <sstream>  // before Check, whose macro fail() would break it

#include "tests/unit/guest_bench.hpp"
#include "tests/unit/home_bench.hpp"

using namespace souk;
using enum CauseCode;

namespace {

namespace g = unit::guests;

std::string code_of(const Cause& cause) { return std::string(to_string(cause.code)); }

// The code of the last message to the job's home. If there is none yet, the message comes when
// nothing of the copy is left.
std::string told(const guest::Outputs& out) {
    std::string code = "nothing was told";
    for (const auto& o : out)
        if (const auto* t = std::get_if<guest::ToHome>(&o))
            if (const auto* e = std::get_if<GuestEvent>(&t->message)) code = code_of(e->why);
    return code;
}
std::string told(g::Bench& b) {
    if (told(b.out) == "nothing was told") b.gone();
    return told(b.out);
}

// The code of the failed order that the market is told of.
std::string failed(const unit::Bench& b) {
    for (const auto& o : b.out)
        if (const auto* m = std::get_if<home::ToMarketMsg>(&o))
            if (const auto* f = std::get_if<OrderFailed>(&m->message)) return code_of(f->why);
    return "nothing failed: " + b.text();
}

GuestCommand start_command(uint64_t seq = 1) {
    GuestCommand c;
    c.id = {"n1", seq};
    c.epoch = {1};
    c.verb = GuestVerb::start;
    return c;
}

}  // namespace

START_TEST(what_fails_on_the_way_out_of_a_node_has_a_code) {
    g::Bench sends;
    sends.running().command(GuestVerb::prepare_dump);
    sends.criu_ready().command(GuestVerb::ship).sent_precopy();
    sends.dump_held().ended(guest::ShipFailed{"the connection broke"});
    ck_assert_text(told(sends.out), to_string(send_failed));
    g::Bench saves;
    saves.running().command(GuestVerb::checkpoint).criu_ready().dump_held();
    saves.undone().ended(guest::CheckpointFailed{"the disk is full"});
    ck_assert_text(told(saves.out), to_string(checkpoint_failed));
    g::Bench fills;
    fills.command(GuestVerb::prepare).ended(guest::CapsuleReady{}).criu_ready();
    fills.ended(guest::ImageReceived{100, MoveForm::post_copy}).ended(guest::RestoreHeld{});
    fills.command(GuestVerb::resume).ended(guest::RestoreRunning{});
    fills.ended(guest::PagesLost{"the source is gone"});
    ck_assert_text(told(fills), to_string(memory_lost));
}
END_TEST

START_TEST(what_a_daemon_finds_that_ended_in_the_middle_has_a_code) {
    for (const GuestState state : {GuestState::starting, GuestState::filling}) {
        g::Bench b;
        b.recovered(state, true, {});
        ck_assert_text(told(b), to_string(agentd_ended));
    }
    Guest::Found dumped;
    dumped.capsule_alive = dumped.job_alive = dumped.held_by_dump = true;
    g::Bench held;
    held.recovered(GuestState::running, false, dumped);
    held.command(GuestVerb::query);
    ck_assert_text(told(held.out), to_string(agentd_ended));
}
END_TEST

START_TEST(what_a_node_does_not_take_has_a_code) {
    Guest full(1);
    guest::Outputs out;
    full.command("n1", start_command(), out);
    out.clear();
    full.command("n1", start_command(2), out);
    ck_assert_text(told(out), to_string(too_many_jobs));
    Guest strict(8, true, {}, GuestTickets{"n2", TicketRule::required});
    out.clear();
    strict.command("n1", start_command(), out);
    ck_assert_text(told(out), to_string(ticket_refused));
}
END_TEST

START_TEST(what_a_home_finds_in_a_move_has_a_code) {
    unit::Bench overtakes;
    overtakes.frozen().run_on("n3").event("n2", 1, GuestState::running);
    ck_assert_text(failed(overtakes), to_string(overtaken));
    unit::Bench went_on;
    went_on.committed().event("n2", 1, GuestState::running);
    ck_assert_text(failed(went_on), to_string(source_not_held));
    unit::Bench away;
    away.submit().run_on("n2");
    away.out.clear();
    GuestCommand start = start_command(away.job().id.seq);
    start.epoch = away.job().epoch;
    away.h.undelivered("n2", start, away.now, away.out);
    ck_assert_text(failed(away), to_string(node_unreachable));
}
END_TEST

START_TEST(what_a_home_makes_of_an_order_has_a_code) {
    unit::Bench refuses;
    refuses.submit().order(Order::Kind::give_up);
    ck_assert_text(failed(refuses), to_string(not_carried_out));
    unit::Bench forgets;
    Order unknown;
    unknown.id = {"n1", 77};
    unknown.seq = 1;
    unknown.node = "n2";
    forgets.h.order(unknown, forgets.now, forgets.out);
    ck_assert(forgets.reported() && forgets.reported()->why->code == home_forgot);
    unit::Bench back;
    Submission s;
    s.spec.launch.argv = {"/bin/job"};
    s.spec.restart = true;
    s.terms.max_price = Money::units(1);
    ck_assert(back.h.submit(s, back.now, back.out).has_value());
    back.run_on("n2").event("n2", 1, GuestState::running);
    back.h.node_lost("n2", back.now, back.out);
    ck_assert_text(code_of(back.job().comment), to_string(goes_back));
}
END_TEST

START_TEST(a_job_that_must_migrate_and_cannot_has_a_code) {
    unit::Bench b;
    Submission s;
    s.spec.launch.argv = {"/bin/job"};
    s.spec.must_migrate = true;
    s.terms.max_price = Money::units(1);
    ck_assert(b.h.submit(s, b.now, b.out).has_value());
    b.run_on("n2").event("n2", 1, GuestState::running);
    GuestEvent held;
    held.id = b.job().id;
    held.epoch = {1};
    held.state = GuestState::running;
    held.cannot_move = "a queue is open";
    b.h.guest_event("n2", held, b.now, b.out);
    b.event("n2", 1, GuestState::killed);
    ck_assert_text(code_of(b.job().why), to_string(must_migrate));
}
END_TEST

START_TEST(what_could_not_be_stopped_where_it_is_goes_on_and_has_a_code) {
    g::Bench b;
    b.running().ended(guest::Movable{because(holds_io_uring, {{"process", "sh"}, {"file", "3"}})});
    b.end([](Guest& m, guest::Outputs& o) {
        GuestCommand freeze = start_command();
        freeze.verb = GuestVerb::freeze;
        freeze.or_stand = true;
        m.command("n1", freeze, o);
    });
    ck_assert_text(b.text(), "P:running stand");
    b.ended(guest::Stood{"its control group is gone"});
    ck_assert_text(told(b.out), to_string(stop_failed));
    ck_assert(b.state() == GuestState::running);
}
END_TEST

START_TEST(a_home_that_starts_again_in_a_move_gives_it_up_and_says_so) {
    unit::Bench moves;
    const unit::Bench back = moves.running().run_on("n3").again();
    ck_assert_text(code_of(back.job().comment), to_string(home_restarted));
    ck_assert(back.job().phase == JobPhase::running && back.job().step == MoveStep::none);
}
END_TEST

UNIT_SUITE(causes_told, what_fails_on_the_way_out_of_a_node_has_a_code,
           what_a_daemon_finds_that_ended_in_the_middle_has_a_code,
           what_a_node_does_not_take_has_a_code, what_a_home_finds_in_a_move_has_a_code,
           what_a_home_makes_of_an_order_has_a_code, a_job_that_must_migrate_and_cannot_has_a_code,
           what_could_not_be_stopped_where_it_is_goes_on_and_has_a_code,
           a_home_that_starts_again_in_a_move_gives_it_up_and_says_so);
