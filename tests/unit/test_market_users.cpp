// SPDX-License-Identifier: GPL-2.0-or-later
// Orders, bill and UserDays by themselves: what becomes of an order, what a job pays, and when its
// user's day is over.
#include "kernel/base/rng.hpp"
#include "market/core/bill.hpp"
#include "market/core/orders.hpp"
#include "market/core/user_days.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using namespace souk::market;

namespace {

constexpr Nanos s(int64_t n) { return Nanos::from_s(n); }

struct One {
    Orders orders{{s(100), s(2), s(60), s(1), s(8)}};
    Nanos now = s(1'000);
    User user;
    Job job;

    // n1.1 runs on n2 at a price of 1 each second and is told so by now.
    explicit One(JobPhase phase = JobPhase::running) {
        JobReport& r = job.record.report;
        r.id = {"n1", 1};
        r.phase = phase;
        r.where = phase == JobPhase::waiting ? "" : "n2";
        r.terms.cpus = 1;
        job.record.price = Money::units(3'600);
        job.record.payee = "n2";
        job.reported = true;
        job.user = &user;
        user.record.uid = 7;
        if (phase == JobPhase::running) job.run_since = now;
    }
    One& give(Order::Kind kind, const char* node = "") {
        Orders::give(job, orders.make(job, kind, node, "why"), now);
        return *this;
    }
    One& report(JobPhase phase, const char* where, uint64_t taken, bool fresh = false) {
        JobReport& r = job.record.report;
        r.phase = phase;
        r.where = where;
        r.order_seq = taken;
        Orders::judge(job, fresh, now);
        return *this;
    }
    bool outstanding() const { return job.record.order.has_value(); }
};

struct Homes final : UserDays::Homes {
    std::set<const Job*> away;
    int told = 0;
    bool is_reachable(const Job& job) const override { return !away.contains(&job); }
    void tell(Job&) override { ++told; }
};

}  // namespace

// -------------------------------------------------------------------------------------------------
// orders

START_TEST(numbers_of_orders_grow_past_all_that_were_used) {
    One o;
    ck_assert_uint_eq(o.orders.make(o.job, Order::Kind::run, "n3", "").seq, 1);
    o.orders.used(10);
    o.orders.used(4);
    ck_assert_uint_eq(o.orders.next_seq(), 11);
    ck_assert_uint_eq(o.orders.make(o.job, Order::Kind::run, "n3", "").seq, 11);
}
END_TEST

START_TEST(an_order_is_over_when_the_job_is_as_it_says) {
    One run;
    run.give(Order::Kind::run, "n3").report(JobPhase::moving, "n2", 1);
    ck_assert(run.outstanding() && Orders::in_transit(run.job));
    ck_assert_text(Orders::heading_for(run.job), "n3");
    run.report(JobPhase::running, "n3", 1);
    ck_assert(!run.outstanding() && !Orders::in_transit(run.job));
    One freeze;
    freeze.give(Order::Kind::suspend).report(JobPhase::freezing, "n2", 1);
    ck_assert(freeze.outstanding());
    ck_assert_text(Orders::heading_for(freeze.job), "");
    freeze.report(JobPhase::frozen, "n2", 1);
    ck_assert(!freeze.outstanding());
    One ended;
    ended.give(Order::Kind::abort).report(JobPhase::running, "n2", 1);
    ck_assert(ended.outstanding());
    ck_assert(!ended.report(JobPhase::finished, "n2", 1).outstanding());
}
END_TEST

START_TEST(an_order_that_was_taken_and_shows_no_sign_is_in_doubt_and_then_over) {
    One o;
    o.give(Order::Kind::run, "n3").report(JobPhase::running, "n2", 1);
    ck_assert(o.outstanding() && o.job.doubt_since == o.now);
    ck_assert(o.orders.due(o.job) == o.now + s(2));
    ck_assert(!o.orders.gives_up(o.job, o.now + s(2) - Nanos{1}));
    ck_assert(o.orders.gives_up(o.job, o.now + s(2)));
    ck_assert(!o.outstanding() && o.job.failed->times == 1);
    ck_assert_text(o.job.failed->last, "the move to n3 failed: its home node did not carry it out");
    // An order whose home is silent altogether takes longer to be given up.
    One silent;
    silent.give(Order::Kind::run, "n3").report(JobPhase::running, "n2", 0);
    ck_assert(silent.job.doubt_since == Nanos::never());
    ck_assert(silent.orders.due(silent.job) == silent.now + s(100));
    ck_assert(silent.orders.gives_up(silent.job, silent.now + s(100)));
}
END_TEST

START_TEST(what_was_on_its_way_to_a_home_that_came_back_has_arrived_or_never_will) {
    One lost;
    lost.give(Order::Kind::run, "n3").report(JobPhase::running, "n2", 0, true);
    ck_assert(!lost.outstanding() && lost.job.failed->times == 0);
    One under_way;
    under_way.give(Order::Kind::run, "n3").report(JobPhase::moving, "n2", 1, true);
    ck_assert(under_way.outstanding());
}
END_TEST

START_TEST(who_could_not_take_a_job_is_not_asked_for_a_while_that_doubles) {
    One o;
    for (const int64_t pause : {1, 2, 4, 8, 8}) {
        o.give(Order::Kind::run, "n3");
        const OrderFailed old{o.job.id(), o.job.record.order->seq - 1, "n3", "no"};
        ck_assert(!o.orders.failed(o.job, old, o.now));
        const OrderFailed failed{o.job.id(), o.job.record.order->seq, "n3", "no"};
        ck_assert(o.orders.failed(o.job, failed, o.now));
        ck_assert(o.job.failed->bars.at("n3").until == o.now + s(pause));
        ck_assert(!o.job.failed->stuck.active);
        o.now += s(pause);
        Orders::end_back_offs(o.job, o.now);
        ck_assert(!o.job.failed->bars.at("n3").active);
    }
    // Done at last: it is forgotten.
    o.give(Order::Kind::run, "n3").report(JobPhase::running, "n3", o.orders.next_seq() - 1);
    ck_assert(!o.job.failed->bars.contains("n3") && o.job.failed->last.empty());
}
END_TEST

START_TEST(a_job_whose_own_node_cannot_let_it_go_is_stuck_there) {
    One o;
    o.give(Order::Kind::run, "n3");
    ck_assert(o.orders.failed(o.job, {o.job.id(), 1, "n2", "CRIU failed"}, o.now));
    ck_assert(o.job.failed->stuck.active && o.job.failed->bars.empty());
    One freeze;
    freeze.give(Order::Kind::suspend);
    ck_assert(freeze.orders.failed(freeze.job, {freeze.job.id(), 1, "n2", "no"}, freeze.now));
    ck_assert(freeze.job.failed->stuck.active);
    ck_assert_text(freeze.job.failed->last, "the freeze failed: no");
}
END_TEST

START_TEST(a_job_that_its_home_does_not_report_any_more_is_forgotten_in_time) {
    One o;
    o.job.reported = false;
    o.job.doubt_since = o.now;
    ck_assert(o.orders.due(o.job) == o.now + s(60));
    ck_assert(!o.orders.is_forgotten(o.job, o.now + s(59)));
    ck_assert(o.orders.is_forgotten(o.job, o.now + s(60)));
}
END_TEST

// -------------------------------------------------------------------------------------------------
// bill

START_TEST(what_is_charged_in_pieces_is_what_the_whole_costs) {
    for (uint64_t seed = 1; seed <= 50; ++seed) {
        Rng rng(seed);
        One pieces, whole;
        Money sum;
        Nanos ran;
        for (int i = 0; i < 30; ++i) {
            ran += Nanos{static_cast<int64_t>(rng.below(1'000'000'000))};
            sum += bill::charge(pieces.job, ran, ran);
        }
        ck_assert(bill::charge(whole.job, ran, ran) == sum);
        ck_assert(pieces.job.record.account == whole.job.record.account);
        ck_assert(pieces.job.record.tab.amount == sum && pieces.job.record.billed == ran);
    }
}
END_TEST

START_TEST(a_charge_never_passes_the_budget_nor_the_rest_of_the_day) {
    One o;
    o.job.record.report.terms.budget = Money::units(10);
    ck_assert(bill::budget_end(o.job) >= o.now + s(10));
    ck_assert(bill::budget_end(o.job) < o.now + s(11));
    ck_assert(bill::charge(o.job, s(100), o.now) == Money::units(10));
    ck_assert(bill::is_used_up(o.job));
    One day;
    day.user.record.limits.spend_per_day = Money::units(3);
    day.user.spent = Money::units(1);
    ck_assert(bill::cost(day.job, day.now + s(100)) == Money::units(2));
    ck_assert(bill::charge(day.job, s(100), day.now) == Money::units(2));
    One full;
    full.user.is_full = true;
    ck_assert(bill::cost(full.job, full.now + s(100)) == Money{});
    ck_assert(bill::charge(full.job, s(100), full.now, Money{}) == Money{});
}
END_TEST

START_TEST(a_rest_that_a_frozen_job_would_be_thawed_for_in_vain_counts_as_none) {
    One o(JobPhase::frozen);
    o.job.record.report.terms.budget = Money::units(10);
    (void)bill::charge(o.job, s(8), o.now);
    ck_assert(!bill::is_used_up(o.job));
    (void)bill::charge(o.job, s(9) + Nanos::from_ms(500), o.now);
    ck_assert(bill::is_used_up(o.job));
    o.job.record.report.phase = JobPhase::running;
    ck_assert(!bill::is_used_up(o.job));
}
END_TEST

START_TEST(a_home_that_forgot_a_stretch_does_not_take_it_back) {
    One o(JobPhase::frozen);
    JobReport before = o.job.record.report;
    o.job.record.report.stats.run_time = s(5);
    bill::Reading r = bill::read(o.job, before, s(60));
    ck_assert(r.complete && r.total == s(60) && o.job.record.skew == s(55));
    o.job.record.report.stats.run_time = s(10);
    r = bill::read(o.job, before, s(60));
    ck_assert(r.total == s(65));
    // The market's clock was a little ahead, because messages take time. The home's figure corrects
    // it.
    r = bill::read(o.job, before, s(66));
    ck_assert(r.total == s(65));
    // While the job runs on, the market's clock may be ahead of the home's figure.
    o.job.record.report.phase = JobPhase::running;
    before = o.job.record.report;
    r = bill::read(o.job, before, s(70));
    ck_assert(!r.complete && r.total == s(70));
}
END_TEST

START_TEST(a_receipt_has_what_was_charged_and_the_next_begins_there) {
    One o;
    ck_assert(!bill::close_tab(o.job));
    o.job.record.report.stats.cpu_time = s(4);
    (void)bill::charge(o.job, s(10), s(1'010));
    ck_assert(bill::is_due_at_price(o.job) && !bill::is_due(o.job));
    const auto receipt = bill::close_tab(o.job);
    ck_assert(receipt && receipt->paid == Money::units(10) && receipt->paid == receipt->earned);
    ck_assert(receipt->node == "n2" && receipt->run == s(10) && receipt->cpu == s(4));
    ck_assert(!bill::close_tab(o.job));
    (void)bill::charge(o.job, s(11), s(1'011));
    const auto next = bill::close_tab(o.job);
    ck_assert(next->from == s(1'010) && next->to == s(1'011) && next->cpu == s(0));
    ck_assert(next->paid == Money::units(1));
}
END_TEST

START_TEST(of_a_move_that_is_heard_of_late_each_place_gets_its_share) {
    One o;
    o.job.record.report.where = "n3";
    o.job.record.report.stay_run = s(40);
    ck_assert(*bill::share_of_former(o.job, s(100)) == s(40));
    o.job.record.billed = s(50);  // more is billed already than it says
    ck_assert(*bill::share_of_former(o.job, s(100)) == s(50));
    o.job.record.report.where = "n2";
    ck_assert(!bill::share_of_former(o.job, s(100)));
}
END_TEST

// -------------------------------------------------------------------------------------------------
// days

START_TEST(a_day_ends_when_the_rates_of_all_jobs_have_used_it_up) {
    One o, p;
    UserDays days;
    Homes homes;
    o.user.record.limits.spend_per_day = Money::units(100);
    p.job.user = &o.user;
    days.changed(7);
    ck_assert(days.take_due() == std::vector<uint32_t>{7} && days.take_due().empty());
    days.reckon(o.user, {&o.job, &p.job}, false, homes, o.now);
    ck_assert(days.next() == o.now + s(50));
    ck_assert(!days.take_ended(o.now + s(50) - Nanos{1}));
    // One of the jobs stops, so the allowance lasts twice as long.
    p.job.run_since = Nanos::never();
    days.reckon(o.user, {&o.job}, false, homes, o.now);
    ck_assert(days.next() == o.now + s(100));
    ck_assert(*days.take_ended(o.now + s(100)) == 7);
    ck_assert(days.next() == Nanos::never() && !days.take_ended(s(1'000'000)));
    // An allowance that is spent already has no end to come.
    days.reckon(o.user, {&o.job}, true, homes, o.now);
    ck_assert(days.next() == Nanos::never());
}
END_TEST

START_TEST(a_rest_too_small_to_run_for_ends_the_day_at_once_and_none_without_a_limit) {
    One o(JobPhase::frozen);
    UserDays days;
    Homes homes;
    o.user.record.limits.spend_per_day = Money::units(1);
    days.reckon(o.user, {}, false, homes, o.now);
    ck_assert(days.next() == Nanos::never());
    days.nothing_left(7);
    days.reckon(o.user, {}, false, homes, o.now);
    ck_assert(days.next() == o.now);
    o.user.record.limits.spend_per_day.reset();
    days.nothing_left(7);
    days.reckon(o.user, {}, false, homes, o.now);
    ck_assert(days.next() == Nanos::never());
}
END_TEST

START_TEST(the_shares_of_homes_never_add_up_to_more_than_the_rest_of_the_day) {
    for (uint64_t seed = 1; seed <= 200; ++seed) {
        Rng rng(seed);
        UserDays days;
        Homes homes;
        std::vector<One> jobs(1 + rng.below(6));
        User& user = jobs[0].user;
        user.record.limits.spend_per_day = Money::units(static_cast<int64_t>(rng.below(5'000)));
        std::vector<Job*> claiming;
        for (One& one : jobs) {
            one.job.user = &user;
            one.job.record.price = Money::units(static_cast<int64_t>(rng.below(9'000)));
            one.job.record.report.terms.cpus = 1 + static_cast<int32_t>(rng.below(4));
            claiming.push_back(&one.job);
        }
        Nanos now = jobs[0].now;
        for (int round = 0; round < 5; ++round) {
            homes.away.clear();
            for (const Job* job : claiming)
                // each has been told once: what nobody could tell runs on
                if (round > 0 && rng.chance(0.3)) homes.away.insert(job);
            days.reckon(user, claiming, false, homes, now);
            Money sum;  // what homes may let run beyond what is charged now
            Money off;  // what is too little to be told again, once nothing is left
            for (Job* job : claiming)
                off +=
                    cost_of(job->record.price, job->record.report.terms.cpus, Nanos::from_ms(400));
            for (Job* job : claiming)
                if (job->noted_day.micro >= 0)
                    sum += std::max(Money{}, job->noted_day - bill::cost(*job, now));
            Money open = user.day_left();
            for (Job* job : claiming) open -= bill::cost(*job, now) - job->record.account.amount;
            ck_assert_msg(sum.micro <= std::max(off.micro, open.micro) + 10, "seed %lu: %ld of %ld",
                          static_cast<unsigned long>(seed), sum.micro, open.micro);
            now += s(static_cast<int64_t>(rng.below(20)));
        }
    }
}
END_TEST

START_TEST(homes_are_told_again_only_when_their_share_is_another) {
    One o;
    UserDays days;
    Homes homes;
    days.reckon(o.user, {&o.job}, false, homes, o.now);
    ck_assert_int_eq(homes.told, 0);  // no limit, and none was told
    o.user.record.limits.spend_per_day = Money::units(100);
    days.reckon(o.user, {&o.job}, false, homes, o.now);
    ck_assert_int_eq(homes.told, 1);
    ck_assert(o.job.noted_day == Money::units(99));  // a second is kept back
    days.reckon(o.user, {&o.job}, false, homes, o.now + s(10));
    ck_assert_int_eq(homes.told, 1);
    o.user.record.limits.spend_per_day = Money::units(200);
    days.reckon(o.user, {&o.job}, false, homes, o.now + s(10));
    ck_assert_int_eq(homes.told, 2);
    o.user.record.limits.spend_per_day.reset();
    days.reckon(o.user, {&o.job}, false, homes, o.now + s(10));
    ck_assert(homes.told == 3 && o.job.noted_day.micro < 0);
}
END_TEST

START_TEST(a_share_of_nothing_that_grows_by_next_to_nothing_is_not_told_again) {
    One o;
    UserDays days;
    Homes homes;
    o.user.record.limits.spend_per_day = Money::units(1);
    days.reckon(o.user, {&o.job}, false, homes, o.now);
    ck_assert(homes.told == 1 && o.job.noted_day == Money{});
    o.user.record.limits.spend_per_day = Money{1'400'000};  // 0.4 s more at its price
    days.reckon(o.user, {&o.job}, false, homes, o.now);
    ck_assert_int_eq(homes.told, 1);
    o.user.record.limits.spend_per_day = Money{1'500'000};
    days.reckon(o.user, {&o.job}, false, homes, o.now);
    ck_assert_int_eq(homes.told, 2);
}
END_TEST

UNIT_SUITE(orders, numbers_of_orders_grow_past_all_that_were_used,
           an_order_is_over_when_the_job_is_as_it_says,
           an_order_that_was_taken_and_shows_no_sign_is_in_doubt_and_then_over,
           what_was_on_its_way_to_a_home_that_came_back_has_arrived_or_never_will,
           who_could_not_take_a_job_is_not_asked_for_a_while_that_doubles,
           a_job_whose_own_node_cannot_let_it_go_is_stuck_there,
           a_job_that_its_home_does_not_report_any_more_is_forgotten_in_time);
UNIT_SUITE(bill, what_is_charged_in_pieces_is_what_the_whole_costs,
           a_charge_never_passes_the_budget_nor_the_rest_of_the_day,
           a_rest_that_a_frozen_job_would_be_thawed_for_in_vain_counts_as_none,
           a_home_that_forgot_a_stretch_does_not_take_it_back,
           a_receipt_has_what_was_charged_and_the_next_begins_there,
           of_a_move_that_is_heard_of_late_each_place_gets_its_share);
UNIT_SUITE(user_days, a_day_ends_when_the_rates_of_all_jobs_have_used_it_up,
           a_rest_too_small_to_run_for_ends_the_day_at_once_and_none_without_a_limit,
           the_shares_of_homes_never_add_up_to_more_than_the_rest_of_the_day,
           homes_are_told_again_only_when_their_share_is_another,
           a_share_of_nothing_that_grows_by_next_to_nothing_is_not_told_again);
