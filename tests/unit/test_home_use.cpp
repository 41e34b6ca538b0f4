// SPDX-License-Identifier: GPL-2.0-or-later
// A Home keeps accounts of its jobs: when their clocks stand, how much they cost, when their
// budgets end, and the CPU time that they took.
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
    s.spec.launch.argv = {"/bin/job"};
    s.terms.max_price = Money::units(40);
    s.terms.budget = Money::units(2);
    ck_assert(b.h.submit(s, b.now, b.out).has_value());
    if (market_up) b.h.market_up(b.now, b.out);
    Order o{id, ++b.seq, Order::Kind::run, "n2", "n2:1", Money::units(36), "", ""};
    b.h.order(o, b.now, b.out);
    b.event("n2", 1, GuestState::running);
    return b;
}
std::string warnings(const Bench& b) {
    std::string all;
    for (const auto& o : b.out)
        if (const auto* tell = std::get_if<home::Tell>(&o);
            tell && tell->what == home::Tell::What::warning)
            all += tell->text;
    return all;
}
}  // namespace

START_TEST(a_job_is_warned_near_the_end_of_its_budget_and_frozen_at_it_while_the_market_is_away) {
    Bench b = with_budget();
    ck_assert_text(warnings(b.wait(Nanos::from_ms(139'900))), "");
    ck_assert_text(warnings(b.wait(Nanos::from_ms(101))),
                   "its budget of 2 is used up in 59 s at its price of 36; then it is frozen (srun "
                   "-J n1.1 -b MORE gives it more)");
    ck_assert_text(b.wait(Nanos::from_ms(59'899)).text(), "");
    ck_assert_text(b.wait(Nanos::from_ms(101)).text(), "P freeze n2.1");
    // A dump that fails is tried again, not at once.
    b.event("n2", 1, GuestState::running, "no room");
    ck_assert_text(b.wait(Nanos::from_s(29)).text(), "");
    ck_assert_text(b.wait(Nanos::from_s(1)).text(), "P freeze n2.1");
    b.event("n2", 1, GuestState::frozen);
    const auto* tell = std::get_if<home::Tell>(&b.out[2]);
    ck_assert(tell &&
              tell->text ==
                  "its budget of 2 is used up; a larger one (srun -J n1.1 -b MORE) wakes it");
}
END_TEST

START_TEST(
    the_market_is_first_to_freeze_at_the_end_of_a_budget_and_its_word_of_cost_and_price_counts) {
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
    // the budget ends up to a micro-unit's worth later
    const auto due = [&away] { return away.h.tick(away.now, away.out).ns / 1'000'000; };
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

namespace {
// The home was started again while its job ran at a price of 36. Its record has the cost and the
// clock of the moment at which it last told the market.
struct Restarted {
    Bench before, after;
    explicit Restarted(uint64_t boot) : before(with_budget()) {
        before.wait(Nanos::from_s(30));
        before.h.note({id, Money::units(36), {300'000}, "", false}, before.now, before.out);
        HomeJob job = before.job();
        Home::Limits limits = Bench::limits();
        limits.boot = boot;
        after.h = Home("n1", limits);
        job.boot = 7;
        after.h.load(job);
        after.now = before.now + Nanos::from_s(70);
        after.h.set_unix_time(after.now);
        after.h.restarted(after.now, after.out);
        after.out.clear();
        after.h.market_up(after.now, after.out);
    }
};
}  // namespace

START_TEST(a_job_that_ran_on_while_its_home_was_away_has_run_all_that_time) {
    Restarted r(7);
    Bench& b = r.after;
    // The market goes by its own clock until the job's node has reported.
    ck_assert(b.reported() && b.reported()->phase == JobPhase::running && !b.reported()->stands);
    ck_assert(b.reported()->stats.run_time == Nanos{0});
    b.event("n2", 1, GuestState::running);
    ck_assert(Home::run_time(b.job(), b.now) == Nanos::from_s(100));
    ck_assert(b.h.cost(b.job(), b.now) == Money::units(1));
    b.h.market_down();
    ck_assert_text(b.wait(Nanos::from_ms(99'900)).text(), "");
    ck_assert_text(b.wait(Nanos::from_ms(101)).text(), "P freeze n2.1");
}
END_TEST

START_TEST(a_job_that_ended_while_its_home_was_away_ran_for_the_cpu_time_that_its_node_measured) {
    Restarted r(7);
    Bench& b = r.after;
    GuestEvent e;
    e.id = id;
    e.epoch = {1};
    e.state = GuestState::exited;
    e.cpu_time = Nanos::from_s(40);
    b.out.clear();
    b.h.guest_event("n2", e, b.now, b.out);
    ck_assert(b.reported() && b.reported()->phase == JobPhase::finished);
    ck_assert(b.reported()->stats.run_time == Nanos::from_s(40));
    Restarted busy(7);  // never for longer than it can have been
    e.cpu_time = Nanos::from_s(400);
    busy.after.h.guest_event("n2", e, busy.after.now, busy.after.out);
    ck_assert(busy.after.job().stats.run_time == Nanos::from_s(100));
}
END_TEST

START_TEST(a_job_whose_home_died_before_it_heard_that_it_runs_has_run_since_it_was_told_to) {
    Home::Limits limits = Bench::limits();
    limits.boot = 7;
    Bench b;
    b.h = Home("n1", limits);
    b.now = Nanos::from_s(5);
    b.submit().run_on("n2");
    HomeJob record = b.job();
    for (const auto& o : b.out)
        if (const auto* p = std::get_if<home::Persist>(&o)) record = p->job;
    ck_assert(Home::run_time(b.job(), Nanos::from_s(9)) == Nanos{0});
    for (const bool runs : {true, false}) {
        Bench c;
        c.h = Home("n1", limits);
        c.h.load(record);
        c.now = Nanos::from_s(65);
        c.h.set_unix_time(c.now);
        c.h.restarted(c.now, c.out);
        GuestEvent e;
        e.id = id;
        e.epoch = {1};
        e.state = runs ? GuestState::running : GuestState::exited;
        e.cpu_time = Nanos::from_s(20);
        c.out.clear();
        c.h.guest_event("n2", e, c.now, c.out);
        ck_assert(c.reported() && c.reported()->stay_run == Nanos{0});
        ck_assert(c.reported()->stats.run_time == Nanos::from_s(runs ? 60 : 20));
    }
}
END_TEST

START_TEST(after_a_boot_of_its_home_a_job_has_run_as_long_as_was_written_down) {
    Restarted r(8);
    Bench& b = r.after;
    ck_assert(b.reported() && b.reported()->stands);
    b.event("n2", 1, GuestState::running);
    ck_assert(Home::run_time(b.job(), b.now) == Nanos{0});
    ck_assert(b.h.cost(b.job(), b.now) == Money{300'000});
}
END_TEST

START_TEST(what_ran_before_a_freeze_or_a_move_was_ordered_is_written_down_with_it) {
    for (const bool move : {false, true}) {
        Bench b;
        b.running();
        b.now += Nanos::from_s(50);
        if (move)
            b.run_on("n3");
        else
            b.suspend();
        for (const auto& o : b.out)
            if (const auto* p = std::get_if<home::Persist>(&o))
                ck_assert(p->job.stats.run_time == Nanos::from_s(50));
        b.now += Nanos::from_s(5);
        b.event("n2", 1, GuestState::dumping);
        ck_assert(b.job().stats.run_time == Nanos::from_s(55));
    }
}
END_TEST

START_TEST(the_market_hears_how_long_a_job_had_run_when_it_came_to_where_it_is) {
    Bench b;
    b.running();
    ck_assert(b.reported() && b.reported()->stay_run == Nanos{0});
    b.now += Nanos::from_s(9);
    b.run_on("n3").event("n2", 1, GuestState::dump_ready).event("n3", 2, GuestState::prepared);
    b.event("n2", 1, GuestState::shipped);
    b.now += Nanos::from_s(4);
    b.event("n3", 2, GuestState::held)
        .event("n2", 1, GuestState::killed)
        .event("n3", 2, GuestState::running);
    b.now += Nanos::from_s(6);
    b.suspend().event("n3", 2, GuestState::frozen);
    ck_assert(b.reported() && b.reported()->stay_run == Nanos::from_s(9));
    ck_assert(b.reported()->stats.run_time == Nanos::from_s(15));
}
END_TEST

namespace {
// A job at a price of 36 that has cost 1. Its user may spend 10 a day, of which 2 are left, and
// half of these are the job's: 100 s.
Bench with_day() {
    Bench b;
    b.submit();
    b.h.market_up(b.now, b.out);
    Order o{id, ++b.seq, Order::Kind::run, "n2", "n2:1", Money::units(36), "", ""};
    b.h.order(o, b.now, b.out);
    b.event("n2", 1, GuestState::running);
    b.now += Nanos::from_s(100);
    b.out.clear();
    b.h.note({id, Money::units(36), Money::units(1), "", false, Money::units(10), Money::units(2),
              Money::units(2)},
             b.now, b.out);
    return b;
}
}  // namespace

START_TEST(a_terminal_hears_of_its_users_day_and_a_home_keeps_to_its_share_without_the_market) {
    Bench b = with_day();
    ck_assert_text(b.text(), "p");  // so that it holds after a restart
    b.h.market_down();
    ck_assert_text(warnings(b.wait(Nanos::from_ms(39'900))), "");
    ck_assert_text(warnings(b.wait(Nanos::from_ms(101))),
                   "the 10 that its user may spend are used up in 59 s at the prices of now; "
                   "then it is frozen until there is more: the next day (UTC), a higher limit or a "
                   "deposit");
    ck_assert_text(b.wait(Nanos::from_ms(59'899)).text(), "");
    ck_assert_text(b.wait(Nanos::from_ms(101)).text(), "P freeze n2.1");
    b.event("n2", 1, GuestState::frozen);
    const auto* tell = std::get_if<home::Tell>(&b.out[2]);
    ck_assert(tell &&
              tell->text ==
                  "its share of the 10 that its user may spend is used up; the market wakes it");
}
END_TEST

START_TEST(the_newest_word_of_a_day_counts_and_a_market_that_is_there_freezes_first) {
    Bench b = with_day();
    b.h.market_down();
    // forgets the stretch, which is not on disk in this bench, and not the share
    Bench c = b.again();
    c.event("n2", 1, GuestState::running);
    (void)warnings(c.wait(Nanos::from_s(50)));
    ck_assert_text(c.wait(Nanos::from_ms(50'001)).text(), "P freeze n2.1");
    b.h.market_up(b.now, b.out);
    ck_assert(warnings(b.wait(Nanos::from_s(50))) != "");
    const auto told = [&](int64_t left, int64_t most) {
        b.out.clear();
        b.h.note({id,
                  Money::units(36),
                  {1'500'000},
                  "",
                  false,
                  Money::units(20),
                  Money::units(left),
                  Money::units(most)},
                 b.now, b.out);
    };
    // of 20 a day now: 650 s, and a warning of its own, when 650 * 20 / 12 / 10 s are left
    told(12, 8);
    ck_assert_text(warnings(b.wait(Nanos::from_ms(541'500))), "");
    ck_assert(warnings(b.wait(Nanos::from_ms(300))) != "");
    ck_assert_text(b.wait(Nanos::from_ms(110'000)).text(), "");  // a moment for the market
    ck_assert_text(b.wait(Nanos::from_ms(300)).text(), "P freeze n2.1");
    Bench free = with_day();
    free.h.note({id, Money::units(36), Money::units(1), "", false}, free.now, free.out);
    ck_assert_text(warnings(free.wait(Nanos::from_s(1'000))), "");
    ck_assert_text(free.text(), "");
}
END_TEST

START_TEST(cpu_time_adds_up_over_places_and_over_restarts_of_their_daemons) {
    Bench b;
    b.running();
    b.now += Nanos::from_s(30);
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

UNIT_SUITE(
    home_use, a_job_that_a_given_up_move_holds_still_is_reported_as_standing_until_it_runs,
    the_pid_of_a_job_is_told_to_the_market_when_its_node_has_found_it,
    the_market_hears_when_a_freeze_begins_that_the_clock_stands,
    a_job_is_warned_near_the_end_of_its_budget_and_frozen_at_it_while_the_market_is_away,
    the_market_is_first_to_freeze_at_the_end_of_a_budget_and_its_word_of_cost_and_price_counts,
    after_a_restart_of_home_a_budget_still_ends,
    a_job_that_ran_on_while_its_home_was_away_has_run_all_that_time,
    a_job_that_ended_while_its_home_was_away_ran_for_the_cpu_time_that_its_node_measured,
    a_job_whose_home_died_before_it_heard_that_it_runs_has_run_since_it_was_told_to,
    after_a_boot_of_its_home_a_job_has_run_as_long_as_was_written_down,
    what_ran_before_a_freeze_or_a_move_was_ordered_is_written_down_with_it,
    the_market_hears_how_long_a_job_had_run_when_it_came_to_where_it_is,
    a_terminal_hears_of_its_users_day_and_a_home_keeps_to_its_share_without_the_market,
    the_newest_word_of_a_day_counts_and_a_market_that_is_there_freezes_first,
    cpu_time_adds_up_over_places_and_over_restarts_of_their_daemons);
