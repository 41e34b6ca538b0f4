// SPDX-License-Identifier: GPL-2.0-or-later
// What a Home reckons: when its jobs' clocks stand, what they cost and when their budgets end, the CPU time they took.
#include "tests/unit/home_bench.hpp"

using namespace souk;
using namespace souk::unit;

START_TEST(a_job_that_a_given_up_move_holds_still_is_reported_as_standing_until_it_runs) {
    Bench b;
    b.shipping();
    b.event("n2", 1, GuestState::dumping);
    b.event("n3", 2, GuestState::failed, "no room");
    ck_assert(b.reported() && b.reported()->phase == JobPhase::running && b.reported()->stands);
    b.now += Nanos::from_s(100);
    b.event("n2", 1, GuestState::running);
    ck_assert(b.reported() && !b.reported()->stands);
    ck_assert(b.job().stats.run_time == Nanos{0});
    b.event("n2", 1, GuestState::running);
    ck_assert(!b.reported());
}
END_TEST

START_TEST(the_pid_of_a_job_is_told_to_the_market_when_its_node_has_found_it) {
    Bench b;
    b.running();
    ck_assert(b.reported() && b.reported()->pid == 0);
    const auto found = [&b](const char* node, uint64_t epoch, int32_t pid) {
        GuestEvent e;
        e.id = id;
        e.epoch = {epoch};
        e.state = GuestState::running;
        e.pid = pid;
        b.out.clear();
        b.h.guest_event(node, e, b.now, b.out);
    };
    found("n2", 1, 77);
    ck_assert(b.reported() && b.reported()->pid == 77);
    found("n2", 1, 77);
    ck_assert(!b.reported());
    found("n3", 2, 78);  // no copy of its
    ck_assert(!b.reported());
    b.suspend().event("n2", 1, GuestState::running, "no room");
    ck_assert(b.reported() && b.reported()->pid == 77);
}
END_TEST

START_TEST(the_market_hears_when_a_freeze_begins_that_the_clock_stands) {
    Bench b;
    b.running();
    b.now += Nanos::from_s(7);
    b.suspend().event("n2", 1, GuestState::dumping);
    b.now += Nanos::from_s(100);
    ck_assert_uint_eq(b.out.size(), 1);
    const auto report = std::get<JobReport>(std::get<home::ToMarketMsg>(b.out[0]).message);
    ck_assert(report.phase == JobPhase::freezing && report.stats.run_time == Nanos::from_s(7));
    b.event("n2", 1, GuestState::frozen);
    ck_assert(b.job().stats.run_time == Nanos::from_s(7));
}
END_TEST

namespace {
// 2 units at 36 per CPU-hour: 200 s.
Bench with_budget(bool market_up = false) {
    Bench b;
    Submission s;
    s.spec.argv = {"/bin/job"};
    s.terms.max_price = Money::units(40);
    s.terms.budget = Money::units(2);
    ck_assert(b.h.submit(s, b.now, b.out).has_value());
    if (market_up) b.h.market_up(b.now, b.out);
    Order o{id, ++b.seq, Order::Kind::run, "n2", "n2:1", Money::units(36), ""};
    b.h.order(o, b.now, b.out);
    b.event("n2", 1, GuestState::running);
    return b;
}
std::string warnings(const Bench& b) {
    std::string all;
    for (const auto& o : b.out)
        if (const auto* tell = std::get_if<home::Tell>(&o); tell && tell->what == home::Tell::What::warning) all += tell->text;
    return all;
}
}  // namespace

START_TEST(a_job_is_warned_near_the_end_of_its_budget_and_frozen_at_it_while_the_market_is_away) {
    Bench b = with_budget();
    ck_assert_text(warnings(b.wait(Nanos::from_ms(139'900))), "");
    ck_assert_text(warnings(b.wait(Nanos::from_ms(101))),
                   "its budget of 2 is used up in 59 s at its price of 36; then it is frozen (srun -J n1.1 -b MORE gives it more)");
    ck_assert_text(b.wait(Nanos::from_ms(59'899)).text(), "");
    ck_assert_text(b.wait(Nanos::from_ms(101)).text(), "P freeze n2.1");
    // A dump that fails is tried again, not at once.
    b.event("n2", 1, GuestState::running, "no room");
    ck_assert_text(b.wait(Nanos::from_s(29)).text(), "");
    ck_assert_text(b.wait(Nanos::from_s(1)).text(), "P freeze n2.1");
    b.event("n2", 1, GuestState::frozen);
    const auto* tell = std::get_if<home::Tell>(&b.out[2]);
    ck_assert(tell && tell->text == "its budget of 2 is used up; a larger one (srun -J n1.1 -b MORE) wakes it");
}
END_TEST

START_TEST(the_market_is_first_to_freeze_at_the_end_of_a_budget_and_its_word_of_cost_and_price_counts) {
    Bench b = with_budget(true);
    b.wait(Nanos::from_s(100));  // it has cost 1 by now
    b.h.note({id, Money::units(72), Money::units(1), "", false}, b.now, b.out);
    ck_assert(b.job().price == Money::units(72));
    ck_assert(warnings(b.wait(Nanos::from_ms(1))) != "");  // 50 s are left
    ck_assert_text(b.wait(Nanos::from_ms(51'899)).text(), "");
    ck_assert_text(b.wait(Nanos::from_ms(101)).text(), "P freeze n2.1");
    Bench away = with_budget(true);
    away.wait(Nanos::from_s(150));
    away.h.market_down();
    const auto due = [&away] { return away.h.tick(away.now, away.out).ns / 1'000'000; };  // up to a micro-unit's worth later
    ck_assert_int_eq(due(), 200'000);
    away.h.market_up(away.now, away.out);
    JobTerms more = away.job().terms;
    more.budget = Money::units(3);
    ck_assert(away.h.change(id, more, away.now, away.out).has_value());
    ck_assert_text(away.wait(Nanos::from_s(60)).text(), "");
    ck_assert_int_eq(due(), 240'000);  // a warning for this budget too
}
END_TEST

START_TEST(after_a_restart_of_home_a_budget_still_ends) {
    Bench b = with_budget();
    b.wait(Nanos::from_s(100));
    b.h.note({id, Money::units(36), Money::units(1), "", false}, b.now, b.out);
    Bench c = b.again();
    c.event("n2", 1, GuestState::running);
    c.wait(Nanos::from_s(50));
    ck_assert_text(c.wait(Nanos::from_ms(49'900)).text(), "");
    ck_assert_text(c.wait(Nanos::from_ms(101)).text(), "P freeze n2.1");
}
END_TEST

START_TEST(cpu_time_adds_up_over_places_and_over_restarts_of_their_daemons) {
    Bench b;
    b.running();
    const auto cpu = [&b](const char* node, uint64_t epoch, GuestState state, int64_t s) {
        GuestEvent e;
        e.id = id;
        e.epoch = {epoch};
        e.state = state;
        e.cpu_time = Nanos::from_s(s);
        b.out.clear();
        b.h.guest_event(node, e, b.now, b.out);
        return b.job().stats.cpu_time.ns / 1'000'000'000;
    };
    ck_assert_int_eq(cpu("n2", 1, GuestState::running, 5), 5);
    ck_assert_uint_eq(b.out.size(), 1);  // told to the market
    ck_assert_int_eq(cpu("n2", 1, GuestState::running, 5), 5);
    ck_assert_uint_eq(b.out.size(), 0);
    ck_assert_int_eq(cpu("n2", 1, GuestState::running, 2), 7);  // its daemon counts anew
    ck_assert_int_eq(cpu("n2", 1, GuestState::running, 0), 7);  // and does not know
    b.run_on("n3");
    cpu("n2", 1, GuestState::dump_ready, 3);
    b.event("n3", 2, GuestState::prepared);
    ck_assert_int_eq(cpu("n2", 1, GuestState::shipped, 4), 9);
    b.event("n3", 2, GuestState::held);
    b.event("n2", 1, GuestState::killed);
    b.event("n3", 2, GuestState::running);
    ck_assert_int_eq(cpu("n3", 2, GuestState::running, 6), 15);
    ck_assert_int_eq(cpu("n2", 1, GuestState::killed, 100), 15);  // of another epoch
}
END_TEST

UNIT_SUITE(home_use,
           a_job_that_a_given_up_move_holds_still_is_reported_as_standing_until_it_runs,
           the_pid_of_a_job_is_told_to_the_market_when_its_node_has_found_it,
           the_market_hears_when_a_freeze_begins_that_the_clock_stands,
           a_job_is_warned_near_the_end_of_its_budget_and_frozen_at_it_while_the_market_is_away,
           the_market_is_first_to_freeze_at_the_end_of_a_budget_and_its_word_of_cost_and_price_counts,
           after_a_restart_of_home_a_budget_still_ends,
           cpu_time_adds_up_over_places_and_over_restarts_of_their_daemons);
