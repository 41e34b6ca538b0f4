// SPDX-License-Identifier: GPL-2.0-or-later
// HomeClock, HomeBudget, HomeExpels and HomeSignals by themselves.
#include "agentd/core/home_budget.hpp"
#include "agentd/core/home_clock.hpp"
#include "agentd/core/home_expels.hpp"
#include "agentd/core/home_signals.hpp"
#include "kernel/base/rng.hpp"
#include "tests/unit/home_rig.hpp"

using namespace souk;
using namespace souk::unit;

namespace {

constexpr Nanos s(int64_t n) { return Nanos::from_s(n); }

// The job costs 3,600 an hour, which is 1 each second.
HomeJob paid(const HomeRig& rig, int64_t budget) {
    HomeJob job = rig.running();
    job.terms.cpus = 1;
    job.price = Money::units(3'600);
    job.terms.budget = Money::units(budget);
    return job;
}

// Money is whole micro-units, so an end is some microseconds later.
bool is_in(Nanos due, Nanos now, Nanos span) {
    return due >= now + span && due < now + span + Nanos::from_ms(1);
}

}  // namespace

// -------------------------------------------------------------------------------------------------
// clock

START_TEST(only_what_runs_is_counted_and_folding_loses_nothing) {
    HomeRig rig;
    HomeJob job = rig.running();
    rig.now += s(10);
    ck_assert(HomeClock::run_time(job, rig.now) == s(10));
    HomeClock::fold(job, rig.now);
    ck_assert(job.stats.run_time == s(10) && HomeClock::run_time(job, rig.now) == s(10));
    rig.now += s(5);
    HomeClock::stop(job, rig.now);
    rig.now += s(100);
    ck_assert(!HomeClock::runs(job) && HomeClock::run_time(job, rig.now) == s(15));
    HomeClock::fold(job, rig.now);
    ck_assert(HomeClock::run_time(job, rig.now) == s(15));
    HomeClock::start(job, rig.turn());
    rig.now += s(1);
    HomeClock::start(job, rig.turn());  // it runs already
    ck_assert(HomeClock::run_time(job, rig.now) == s(16));
}
END_TEST

START_TEST(after_a_restart_the_first_word_of_its_node_settles_what_has_run_meanwhile) {
    HomeRig rig;
    const HomeJob before = rig.running();
    const auto again = [&](uint64_t boot, const GuestEvent& word) {
        HomeClock clock;
        HomeJob job = before;
        job.terms.cpus = 2;
        clock.loaded(job, boot);
        ck_assert(!HomeClock::runs(job));
        ck_assert(clock.unproven(job) == (boot == 7));
        clock.prove(job, word, rig.now + s(100));
        ck_assert(!clock.unproven(job));
        return HomeClock::run_time(job, rig.now + s(100));
    };
    ck_assert(again(7, HomeRig::event(GuestState::running)) == s(100));
    ck_assert(again(8, HomeRig::event(GuestState::running)) == s(0));
    GuestEvent ended = HomeRig::event(GuestState::exited);
    ended.cpu_time = s(50);
    ck_assert(again(7, ended) == s(25));
    ended.cpu_time = s(500);
    ck_assert(again(7, ended) == s(100));
}
END_TEST

START_TEST(cpu_time_is_added_up_over_epochs_that_each_begin_at_none) {
    HomeRig rig;
    HomeJob job = rig.running();
    GuestEvent e = HomeRig::event(GuestState::running);
    for (const int64_t told : {5, 9, 0, 9}) {
        e.cpu_time = s(told);
        HomeClock::tally_use(job, e);
    }
    ck_assert(job.stats.cpu_time == s(9));
    e.cpu_time = s(2);  // its node counts anew
    HomeClock::tally_use(job, e);
    ck_assert(job.stats.cpu_time == s(11) && job.cpu_here == s(2));
}
END_TEST

START_TEST(of_its_memory_the_most_counts_that_any_of_its_nodes_has_told) {
    HomeRig rig;
    HomeJob job = rig.running();
    GuestEvent e = HomeRig::event(GuestState::running);
    for (const int64_t told : {5, 90, 0, 7}) {
        e.memory_peak = told << 20;
        HomeClock::tally_use(job, e);
    }
    ck_assert_int_eq(job.stats.memory_peak, 90 << 20);
}
END_TEST

// -------------------------------------------------------------------------------------------------
// budget

START_TEST(first_it_warns_then_it_ends_when_the_budget_is_used_up) {
    HomeRig rig;
    HomeBudget budget(100, s(60));
    HomeJob job = paid(rig, 1'000);
    const Nanos began = rig.now;
    ck_assert(is_in(budget.due(job), began, s(900)));  // a tenth is left
    rig.now = budget.due(job);
    ck_assert(!budget.ends(job, rig.turn()));
    ck_assert(rig.said().starts_with("its budget of 1000 is used up in 100 s at its price"));
    ck_assert(is_in(budget.due(job), began, s(1'000)));
    rig.now = budget.due(job);
    ck_assert(budget.ends(job, rig.turn()));
    budget.tell_why(job, rig.turn());
    ck_assert(rig.said().starts_with("its budget of 1000 is used up; a larger one"));
    ck_assert(HomeClock::cost(job, rig.now) == Money::units(1'000));
    // The job still runs, because the freeze failed. It is not frozen again at once, but a while
    // later.
    ck_assert(budget.due(job) == rig.now + s(30));
    rig.now += s(31);
    budget.tell_why(job, rig.turn());
    ck_assert_text(rig.said(), "");
    // A larger one is another, of which it is warned again.
    job.terms.budget = Money::units(2'000);
    ck_assert(is_in(budget.due(job), began, s(1'800)));
}
END_TEST

START_TEST(while_the_market_is_there_it_is_left_a_moment_to_freeze_the_job_itself) {
    HomeRig rig;
    HomeBudget budget(0, {});
    HomeJob job = paid(rig, 1'000);
    rig.now = budget.due(job);
    ck_assert(!budget.ends(job, rig.turn()));  // the warning
    ck_assert(budget.due(job) == rig.now);
    budget.market_is_up(true);
    ck_assert(budget.due(job) > rig.now && budget.due(job) <= rig.now + s(5));
    budget.market_is_up(false);
    ck_assert(budget.due(job) == rig.now);
}
END_TEST

START_TEST(what_does_not_run_or_has_no_budget_is_never_due) {
    HomeRig rig;
    const HomeBudget budget(100, s(60));
    HomeJob job = paid(rig, 0);
    ck_assert(budget.due(job) == Nanos::never());
    job = paid(rig, 1'000);
    job.phase = JobPhase::freezing;
    ck_assert(budget.due(job) == Nanos::never());
    job = paid(rig, 1'000);
    job.running_since = Nanos::never();
    ck_assert(budget.due(job) == Nanos::never());
    job = paid(rig, 1'000);
    job.price = {};
    ck_assert(budget.due(job) == Nanos::never());
}
END_TEST

// The job has random prices and budgets, which are told at random times. A job that is frozen as
// soon as that is due never costs more than its budget.
START_TEST(a_budget_is_never_exceeded_if_the_job_is_frozen_when_it_ends) {
    for (uint64_t seed = 1; seed <= 300; ++seed) {
        Rng rng(seed);
        HomeRig rig;
        HomeBudget budget(static_cast<int64_t>(rng.below(1'001)), s(rng.below(100)));
        HomeJob job = paid(rig, 1 + rng.below(5'000));
        job.terms.cpus = 1 + static_cast<int32_t>(rng.below(8));
        const Money limit = job.terms.budget;
        bool frozen = false;
        Money by_price;  // by the clock alone, without the limit that HomeClock::cost puts on it
        for (int step = 0; step < 1'000 && !frozen; ++step) {
            const Nanos told = rig.now + s(1 + rng.below(500));
            for (Nanos due = budget.due(job); due <= told && !frozen; due = budget.due(job)) {
                ck_assert(due >= rig.now);
                by_price += cost_of(job.price, job.terms.cpus, due - rig.now);
                rig.now = due;
                frozen = budget.ends(job, rig.turn());
            }
            if (frozen) break;
            by_price += cost_of(job.price, job.terms.cpus, told - rig.now);
            rig.now = told;
            job.cost = by_price;
            job.cost_run = HomeClock::run_time(job, rig.now);
            job.price = Money{static_cast<int64_t>(1 + rng.below(20'000'000'000))};
        }
        ck_assert(frozen);
        // The cost is rounded at each step, so it may exceed the limit by a little.
        ck_assert(by_price.micro <= limit.micro + 10'000);
    }
}
END_TEST

START_TEST(a_users_day_ends_as_a_budget_does_and_another_day_warns_again) {
    HomeRig rig;
    HomeBudget budget(100, s(10));
    HomeJob job = paid(rig, 0);
    JobNote note;
    note.price = job.price;
    note.day_limit = note.day_left = note.day_cost = Money::units(1'000);
    budget.take_day(job, note);
    const Nanos began = rig.now;
    ck_assert(is_in(budget.due(job), began, s(900)));
    rig.now = budget.due(job);
    ck_assert(!budget.ends(job, rig.turn()) && !rig.said().empty());
    ck_assert(is_in(budget.due(job), began, s(1'000)));
    rig.now = budget.due(job);
    ck_assert(budget.ends(job, rig.turn()));
    // The next day: as much again.
    note.cost = job.cost = Money::units(1'000);
    note.day_cost = Money::units(2'000);
    job.cost_run = HomeClock::run_time(job, rig.now);
    budget.take_day(job, note);
    ck_assert(is_in(budget.due(job), rig.now, s(900)));
}
END_TEST

// -------------------------------------------------------------------------------------------------
// expels and signals

START_TEST(each_freeze_that_failed_doubles_the_wait_up_to_a_minute) {
    HomeRig rig;
    HomeExpels expels(s(4));
    HomeJob job = rig.running();
    expels.wanted(job, rig.now);
    for (const int64_t wait : {4, 8, 16, 32, 60, 60}) {
        ck_assert(expels.due(job) == rig.now + s(wait));
        ck_assert(!expels.ripe(job, rig.now + s(wait) - Nanos{1}));
        rig.now += s(wait);
        ck_assert(expels.ripe(job, rig.now) && expels.due(job) == Nanos::never());
        expels.freeze_failed(job);
        expels.arm(job, rig.now);
    }
    // Elsewhere nobody wants it away.
    job.epoch = {2};
    rig.now += s(60);
    ck_assert(!expels.ripe(job, rig.now));
    expels.arm(job, rig.now);
    ck_assert(expels.due(job) == Nanos::never());
    expels.wanted(job, rig.now);
    ck_assert(expels.due(job) == rig.now + s(4));
}
END_TEST

START_TEST(in_a_step_an_expulsion_waits_for_its_end) {
    HomeRig rig;
    HomeExpels expels(s(4));
    HomeJob job = rig.running();
    job.phase = JobPhase::moving;
    expels.wanted(job, rig.now);
    ck_assert(expels.due(job) == Nanos::never());
    job.phase = JobPhase::running;
    expels.arm(job, rig.now);
    ck_assert(expels.due(job) == rig.now + s(4));
    expels.leaves(job);
    ck_assert(expels.due(job) == Nanos::never());
    expels.forget_wish(job);
    expels.arm(job, rig.now);
    ck_assert(expels.due(job) == Nanos::never());
}
END_TEST

START_TEST(signals_keep_their_order_and_wait_while_a_job_is_on_its_way) {
    HomeRig rig;
    HomeSignals signals;
    HomeJob job = rig.running();
    job.phase = JobPhase::moving;
    job.step = MoveStep::transfer;
    for (const int32_t n : {10, 12, 15}) ck_assert(signals.add(job, n).has_value());
    signals.send(job, rig.turn());
    ck_assert_text(rig.text(), "");
    ck_assert_uint_eq(signals.waiting(job), 3);
    job.phase = JobPhase::running;
    job.step = MoveStep::none;
    job.at.node = "n3";
    job.epoch = {2};
    signals.send(job, rig.turn());
    ck_assert_text(rig.text(), "signal n3.2 signal n3.2 signal n3.2");
    std::vector<int32_t> sent;
    for (const auto& o : rig.out) sent.push_back(std::get<home::ToGuest>(o).command.signal);
    ck_assert(sent == std::vector<int32_t>({10, 12, 15}));
    signals.send(job, rig.turn());
    ck_assert_text(rig.text(), "");
}
END_TEST

START_TEST(signals_are_refused_where_no_process_can_take_them_or_too_many_wait) {
    HomeRig rig;
    HomeSignals signals;
    HomeJob job = rig.running();
    job.phase = JobPhase::frozen;
    ck_assert(!signals.add(job, 15));
    job.phase = JobPhase::moving;
    for (int i = 0; i < 64; ++i) ck_assert(signals.add(job, 15).has_value());
    ck_assert(!signals.add(job, 15));
}
END_TEST

UNIT_SUITE(home_clock, only_what_runs_is_counted_and_folding_loses_nothing,
           after_a_restart_the_first_word_of_its_node_settles_what_has_run_meanwhile,
           cpu_time_is_added_up_over_epochs_that_each_begin_at_none,
           of_its_memory_the_most_counts_that_any_of_its_nodes_has_told);
UNIT_SUITE(home_budget, first_it_warns_then_it_ends_when_the_budget_is_used_up,
           while_the_market_is_there_it_is_left_a_moment_to_freeze_the_job_itself,
           what_does_not_run_or_has_no_budget_is_never_due,
           a_budget_is_never_exceeded_if_the_job_is_frozen_when_it_ends,
           a_users_day_ends_as_a_budget_does_and_another_day_warns_again);
UNIT_SUITE(home_expels, each_freeze_that_failed_doubles_the_wait_up_to_a_minute,
           in_a_step_an_expulsion_waits_for_its_end);
UNIT_SUITE(home_signals, signals_keep_their_order_and_wait_while_a_job_is_on_its_way,
           signals_are_refused_where_no_process_can_take_them_or_too_many_wait);
