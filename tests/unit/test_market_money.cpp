// SPDX-License-Identifier: GPL-2.0-or-later
// Jobs pay: these tests check the exact account, and the market's bills by the time that homes
// report.
#include "kernel/base/rng.hpp"
#include "market/core/strategy.hpp"
#include "market/store/records.hpp"
#include "tests/unit/market_world.hpp"

using namespace souk;
using namespace souk::market;

namespace {
constexpr Nanos s(int64_t v) { return Nanos::from_s(v); }
constexpr Nanos hours(int64_t v) { return Nanos::from_s(3'600 * v); }
}  // namespace

// Method: random stretches at random prices; the sum must be that of one exact 128-bit sum, rounded
// down once.
START_TEST(an_account_loses_no_fraction_however_often_the_price_changes) {
    Rng rng(11);
    for (int round = 0; round < 200; ++round) {
        Account account;
        __int128 exact = 0;
        Money gained;
        for (int i = 0; i < 300; ++i) {
            const Money price{rng.between(1, 5'000'000)};
            const int64_t cpus = rng.between(1, 8);
            const Nanos span{rng.between(-1'000, 4'000'000)};
            if (exact + static_cast<__int128>(price.micro) * cpus * span.ns < 0) continue;
            gained += account.charge(price, cpus, span, {});
            exact += static_cast<__int128>(price.micro) * cpus * span.ns;
        }
        ck_assert_int_eq(account.amount.micro, static_cast<int64_t>(exact / hour_ns));
        ck_assert_int_eq(account.rest, static_cast<int64_t>(exact % hour_ns));
        ck_assert_int_eq(gained.micro, account.amount.micro);
    }
}
END_TEST

START_TEST(an_account_never_passes_its_budget_and_says_when_it_will_end) {
    Rng rng(12);
    for (int round = 0; round < 5'000; ++round) {
        const Money budget{rng.between(1, 1'000'000)}, price{rng.between(1, 900'000'000)};
        const int64_t cpus = rng.between(1, 16);
        Account account;
        account.charge(Money{rng.between(1, 999)}, 1, Nanos{rng.between(0, 3'600'000'000)}, budget);
        const Nanos left = account.left(price, cpus, budget);
        Account at_end = account, beyond = account;
        at_end.charge(price, cpus, left, budget);
        ck_assert(at_end.amount <= budget);
        beyond.charge(price, cpus, left + Nanos{1 + hour_ns / (price.micro * cpus)}, budget);
        ck_assert_int_eq(beyond.amount.micro, budget.micro);
    }
    ck_assert(Account().left({}, 1, Money::units(1)) == Nanos::never());
    ck_assert(Account().left(Money::units(1), 1, {}) == Nanos::never());
}
END_TEST

START_TEST(a_job_alone_pays_the_reserve_for_each_cpu_hour_that_it_ran) {
    World w;
    w.add_node("n1", 100, 7, 4);
    w.run_for(s(4));
    const JobId a = w.submit("n1", 100, hours(3), 2);
    w.run_for(hours(4));
    ck_assert_text(w.where(a), "finished");
    ck_assert_text(format_money(w.cost(a)), "42");
    ck_assert_text(format_money(w.jobs[a].note.cost), "42");
    ck_assert_text(format_money(w.market->find_node("n1")->record.earned), "42");
}
END_TEST

START_TEST(the_winner_of_a_contest_pays_the_bid_that_it_had_to_beat) {
    World w;
    w.add_node("n1", 100, 1);
    w.run_for(s(4));
    w.submit_as(1001, "n1", 60);
    const JobId b = w.submit("n1", 100);
    w.run_for(s(1));
    ck_assert_text(w.where(b), "n1");
    ck_assert_text(format_money(w.jobs[b].note.price), "60");
    ck_assert_text(format_money(w.provider_notes["n1"].current_price), "60");
    ck_assert(w.provider_notes["n1"].next_price > Money::units(100));
    ck_assert_int_eq(w.provider_notes["n1"].guests, 1);
}
END_TEST

START_TEST(time_in_transit_is_not_paid_for) {
    World w;
    w.transit = s(100);
    w.add_node("n1", 200, 36);
    w.add_node("n2", 100, 36);
    w.run_for(s(4));
    const JobId a = w.submit("n1", 100);
    w.run_for(s(200));  // started after 100 s, ran 100 s
    ck_assert_text(format_money(w.cost(a)), "1");
    ProviderReport p = w.providers["n1"];
    p.on_market = false;
    w.set_provider(p);
    w.run_for(s(200));  // moved for 100 s, ran 100 s
    ck_assert_text(w.where(a), "n2");
    ck_assert_text(format_money(w.cost(a)), "2");
    ck_assert_int_eq(w.market->run_time(*w.market->find(a), w.now).ns, s(200).ns);
    w.decide();
    ck_assert_text(format_money(w.market->find_node("n1")->record.earned), "1");
}
END_TEST

START_TEST(a_budget_is_never_exceeded_and_a_larger_one_wakes_the_job) {
    World w;
    w.add_node("n1", 100, 36);
    w.run_for(s(4));
    const JobId a = w.submit("n1", 100, Nanos::never(), 1, 100, Money::units(2));
    w.run_for(s(1'000));
    ck_assert_text(w.where(a), "frozen");
    ck_assert_text(w.comment(a),
                   "its budget of 2 is used up; a larger one (srun -J n1.1 -b MORE) wakes it");
    ck_assert_text(format_money(w.cost(a)), "2");
    ck_assert_int_le(w.jobs[a].report.stats.run_time.ns, s(201).ns);
    w.jobs[a].report.terms.budget = Money::units(3);
    w.tell(w.jobs[a]);
    w.run_for(s(50));
    ck_assert_text(w.where(a), "n1");
    w.run_for(s(1'000));
    ck_assert_text(w.where(a), "frozen");
    ck_assert_text(format_money(w.cost(a)), "3");
    w.jobs[a].report.terms.budget = {};
    w.tell(w.jobs[a]);
    w.run_for(s(1'000));
    ck_assert_text(w.where(a), "n1");
}
END_TEST

START_TEST(a_budget_that_is_lowered_below_the_cost_suspends_at_once) {
    World w;
    w.add_node("n1", 100, 36);
    w.run_for(s(4));
    const JobId a = w.submit("n1", 100);
    w.run_for(s(1'000));
    const Money before = w.cost(a);
    w.jobs[a].report.terms.budget = Money::units(1);
    w.tell(w.jobs[a]);
    w.run_for(s(1));
    ck_assert_text(w.where(a), "frozen");
    ck_assert(w.cost(a) == before);
}
END_TEST

START_TEST(surplus_and_welfare_are_those_of_the_allocation) {
    World w;
    w.add_node("n1", 100, 10);
    w.run_for(s(4));
    w.submit_as(1001, "n1", 60);
    w.submit("n1", 100);
    w.run_for(s(1));
    const Totals t = w.market->totals(w.now);
    ck_assert_text(format_money(t.surplus.consumers), "40");
    ck_assert_text(format_money(t.surplus.providers), "50");
    ck_assert_text(format_money(t.surplus.welfare), "90");
    ck_assert_int_eq(t.running, 1);
    ck_assert_int_eq(t.waiting + t.frozen, 1);
}
END_TEST

START_TEST(prices_that_take_long_come_in_pieces_and_are_not_left_behind) {
    // 150 machines and 700 jobs of mixed needs: far more than 20,000 steps.
    World w;
    Rng rng(3);
    for (int n = 1; n <= 150; ++n)
        w.add_node("n" + std::to_string(n), 50 * rng.between(1, 3), 1,
                   static_cast<int32_t>(rng.between(2, 8)), 4000);
    w.run_for(s(4));
    for (int i = 0; i < 700; ++i)
        w.submit("n1", rng.between(2, 90), Nanos::never(), static_cast<int32_t>(rng.between(1, 3)),
                 rng.between(50, 1500), {}, static_cast<uint32_t>(1000 + i));
    w.run_for(s(20));
    const auto prices = [&] {
        std::map<JobId, Money> all;
        for (const auto& [id, job] : w.market->jobs())
            if (job.phase() == JobPhase::running && !job.record.order) all[id] = job.record.price;
        return all;
    };
    std::map<JobId, Money> before = prices();
    ck_assert(before.size() > 200);
    // prices that changed in one step, of jobs that stay where they are; and in all
    size_t most = 0, all = 0;
    w.after_step = [&] {
        std::map<JobId, Money> after = prices();
        size_t others = 0;
        for (const auto& [id, price] : after) others += before.contains(id) && before[id] != price;
        most = std::max(most, others);
        all += others;
        before = std::move(after);
    };
    for (int i = 0; i < 40; ++i) {
        w.submit("n1", rng.between(60, 90), Nanos::never(), static_cast<int32_t>(rng.between(1, 3)),
                 rng.between(50, 900), {}, static_cast<uint32_t>(2000 + i));
        w.run_for(Nanos::from_ms(100));
    }
    ck_assert_uint_ge(all, 200);
    ck_assert_uint_le(most, 128);
    w.after_step = nullptr;
    w.run_for(s(10));
    const auto kept = prices();
    // fits nowhere, takes nothing from anybody, and has all prices reckoned anew
    w.submit("n1", 1, Nanos::never(), 900);
    w.run_for(s(10));
    ck_assert(prices() == kept);
}
END_TEST

START_TEST(a_paced_bid_is_what_the_rest_lasts_for_and_never_above_the_most_nor_without_end) {
    JobTerms t;
    t.max_price = Money::units(100);
    t.budget = Money::units(20);
    t.finish = hours(2);
    t.cpus = 2;
    ck_assert(bid_of(t, {{}, hours(2), {}, 0, {}}, {}).price == Money::units(100));  // it does not
    t.pace = true;
    ck_assert(paced_bid(t, {}, hours(2)) == Money::units(5));
    ck_assert(paced_bid(t, Money::units(10), hours(2)) == Money{2'500'000});
    ck_assert(paced_bid(t, {}, s(60)) == Money::units(100));
    ck_assert(paced_bid(t, {}, {0}) == Money::units(100));
    ck_assert(paced_bid(t, Money::units(20), hours(1)) == Money{1});
    // The budget lasts until the finish at every price up to the bid, and is used up then if the
    // price is always the bid.
    Rng rng(8);
    for (int round = 0; round < 200; ++round) {
        const bool all = rng.chance(0.5);
        Account account;
        Nanos left = t.finish;
        while (left.ns > 0) {
            const Money bid = paced_bid(t, account.amount, left);
            const Nanos step = std::min(left, pace_step(left));
            account.charge(all ? bid : Money{rng.between(1, bid.micro)}, t.cpus, step, t.budget);
            left = left - step;
            ck_assert(account.amount < t.budget || left.ns == 0);
        }
        if (all) ck_assert(account.amount > t.budget - Money{200'000});
    }
}
END_TEST

START_TEST(a_job_that_paces_itself_waits_until_its_savings_win) {
    World w;
    w.add_node("n1", 100, 1);
    w.run_for(s(4));
    const JobId rival = w.submit_as(1001, "n1", 10);
    w.run_for(s(1));
    const JobId a = w.submit("n1", 100, Nanos::never(), 1, 100, Money::units(20));
    JobTerms& t = w.jobs[a].report.terms;
    t.pace = true;
    t.finish = hours(4);
    w.tell(w.jobs[a]);
    w.run_for(s(60));
    ck_assert_text(w.where(a), "waiting");
    ck_assert(w.market->find(a)->bid < Money::units(6));
    w.run_for(hours(3));  // 20 for an hour
    ck_assert_text(w.where(a), "n1");
    ck_assert_text(w.where(rival), "frozen");
    ck_assert(w.market->find(a)->record.price <= w.market->find(a)->bid);
    w.run_for(hours(2));
    ck_assert(w.cost(a) <= Money::units(20) && w.cost(a) > Money::units(9));
}
END_TEST

START_TEST(many_prices_that_one_bid_changes_are_put_in_force_a_bounded_number_at_once) {
    // 600 jobs on as many machines pay what the best bid in the queue is: one better loser, and all
    // of them change.
    World w;
    for (int n = 1; n <= 600; ++n) w.add_node("n" + std::to_string(n), 100, 1);
    w.run_for(s(4));
    for (uint32_t n = 1; n <= 600; ++n) w.submit_as(1000 + n, "n" + std::to_string(n), 100);
    w.run_for(s(5));
    w.submit("n1", 50);
    size_t steps = 0, most = 0;
    std::map<JobId, Money> before;
    w.after_step = [&] {
        size_t changed = 0;
        for (const auto& [id, job] : w.market->jobs()) {
            if (job.phase() != JobPhase::running) continue;
            changed += before.contains(id) && before[id] != job.record.price;
            before[id] = job.record.price;
        }
        steps += changed > 0;
        most = std::max(most, changed);
    };
    w.run_for(s(3));
    ck_assert_uint_le(most, 128);
    ck_assert_uint_ge(steps, 4);
    for (const auto& [id, job] : w.market->jobs())
        if (job.phase() == JobPhase::running) ck_assert_text(format_money(job.record.price), "50");
}
END_TEST

START_TEST(what_a_provider_must_give_back_is_kept_and_never_told_as_less_than_nothing) {
    World w;
    w.add_node("n1", 100, 10);
    w.run_for(s(4));
    // A home's clock says a little less than was charged so far, and meanwhile the price has risen.
    w.stored_nodes.at("n1").earned = Money{-17};
    const auto again = wire::unpack<NodeRecord>(wire::pack(w.stored_nodes.at("n1")));
    ck_assert(again.has_value() && again->earned == Money{-17});
    w.restart();
    const Node& node = w.market->nodes().at("n1");
    ck_assert_int_eq(node.record.earned.micro, -17);
    ck_assert_int_eq(w.market->prices(node).earned.micro, 0);
}
END_TEST

UNIT_SUITE(market_money, many_prices_that_one_bid_changes_are_put_in_force_a_bounded_number_at_once,
           what_a_provider_must_give_back_is_kept_and_never_told_as_less_than_nothing,
           a_paced_bid_is_what_the_rest_lasts_for_and_never_above_the_most_nor_without_end,
           a_job_that_paces_itself_waits_until_its_savings_win,
           an_account_loses_no_fraction_however_often_the_price_changes,
           an_account_never_passes_its_budget_and_says_when_it_will_end,
           a_job_alone_pays_the_reserve_for_each_cpu_hour_that_it_ran,
           the_winner_of_a_contest_pays_the_bid_that_it_had_to_beat,
           time_in_transit_is_not_paid_for,
           a_budget_is_never_exceeded_and_a_larger_one_wakes_the_job,
           a_budget_that_is_lowered_below_the_cost_suspends_at_once,
           prices_that_take_long_come_in_pieces_and_are_not_left_behind,
           surplus_and_welfare_are_those_of_the_allocation);
