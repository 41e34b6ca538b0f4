// SPDX-License-Identifier: GPL-2.0-or-later
// What jobs bid by their users' strategies: properties on random terms and prices.
#include "kernel/base/rng.hpp"
#include "market/core/pace.hpp"
#include "market/core/strategy.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using namespace souk::market;

namespace {

constexpr Nanos hour = Nanos::from_s(3'600);

// A day of hours, each with a place at speed 100 for so much.
std::vector<PriceRecord> day_of(const std::function<int64_t(int)>& price) {
    std::vector<PriceRecord> all;
    for (int h = 0; h < 24; ++h) {
        PriceRecord r;
        r.minute = h * 60;
        r.minutes = 60;
        r.least = r.low = r.high = Money::units(price(h));
        r.speeds = {{100, 60, r.least}};
        all.push_back(r);
    }
    return all;
}

JobTerms terms_of(const char* strategy, int64_t max_price, Nanos finish = {}) {
    JobTerms t;
    t.strategy = strategy;
    t.max_price = Money::units(max_price);
    t.finish = finish;
    return t;
}

const char* const names[] = {"truthful", "patient", "deadline:7200", "fixed", "whatever", ""};

}  // namespace

START_TEST(every_strategy_bids_at_most_the_maximum_price_and_more_than_nothing) {
    Rng rng(3);
    for (int i = 0; i < 2'000; ++i) {
        const auto day = day_of([&](int) { return rng.between(0, 60); });
        JobTerms t = terms_of(names[rng.below(6)], rng.between(1, 80),
                              Nanos::from_s(rng.between(0, 100'000)));
        t.pace = rng.below(4) == 0;
        t.budget = Money::units(rng.between(0, 100));
        StrategyView view{Money::units(rng.between(0, 100)), Nanos::from_s(rng.between(0, 9'000)),
                          Nanos::from_s(rng.between(-100, 100'000)), day};
        if (rng.below(5) == 0) view.hours = {};
        const Money bid = strategy_bid(t, view);
        ck_assert(bid.micro >= 1 && bid <= t.max_price);
        ck_assert(bid == strategy_bid(t, view));  // of nothing else
        ck_assert(strategy_step(t, view.left) >= Nanos::from_s(1));
        if (strategy_of(t).kind == StrategyKind::truthful) ck_assert(bid == t.max_price);
        if (t.pace) ck_assert(bid == paced_bid(t, view.spent, view.left));
    }
}
END_TEST

START_TEST(a_higher_bid_more_time_and_less_work_never_lower_the_chance) {
    Rng rng(5);
    for (int i = 0; i < 500; ++i) {
        const auto day = day_of([&](int) { return rng.between(1, 40); });
        const Money bid = Money::units(rng.between(1, 40));
        const Nanos work = Nanos::from_s(rng.between(1, 90'000)),
                    left = Nanos::from_s(rng.between(1, 200'000));
        const double chance = chance_in_time(day, bid, work, left);
        ck_assert(chance >= 0 && chance <= 1);
        ck_assert(chance_in_time(day, bid + Money::units(1), work, left) >= chance);
        ck_assert(chance_in_time(day, bid, work, left + hour) >= chance);
        ck_assert(chance_in_time(day, bid, Nanos{work.ns / 2}, left) >= chance);
    }
}
END_TEST

START_TEST(a_deadline_is_met_by_the_least_bid_that_meets_it) {
    // Half of the day costs 5, half of it 20.
    const auto day = day_of([](int h) { return h < 12 ? 5 : 20; });
    const auto bid = [&](int64_t work_h, int64_t left_h, int64_t max = 50, Nanos ran = {}) {
        const JobTerms t = terms_of(("deadline:" + std::to_string(work_h * 3'600)).c_str(), max,
                                    Nanos{hour.ns * 100});
        return strategy_bid(t, {{}, ran, Nanos{hour.ns * left_h}, day}).micro / 1'000'000;
    };
    ck_assert_int_eq(bid(6, 24), 5);  // a night is long enough, whenever it is now
    ck_assert_int_eq(bid(12, 24), 5);
    ck_assert_int_eq(bid(13, 24), 20);
    ck_assert_int_eq(bid(6, 7), 20);                           // no time to wait for the night
    ck_assert_int_eq(bid(6, 5), 50);                           // it cannot be: all that it may
    ck_assert_int_eq(bid(13, 24, 50, Nanos{hour.ns * 2}), 5);  // two hours of it are done
    ck_assert_int_eq(bid(13, 24, 15), 15);
    // Bids that are lower fail, on random prices.
    Rng rng(9);
    for (int i = 0; i < 200; ++i) {
        const auto random = day_of([&](int) { return rng.between(2, 40); });
        const JobTerms t = terms_of("deadline:18000", 100, Nanos{hour.ns * 24});
        const Nanos left = Nanos{hour.ns * rng.between(6, 24)};
        const Money least = strategy_bid(t, {{}, {}, left, random});
        const Nanos work = Nanos::from_s(18'000);
        if (least < t.max_price)
            ck_assert(chance_in_time(random, least, work, left) >= deadline_chance);
        ck_assert(chance_in_time(random, least - Money{1}, work, left) < deadline_chance);
    }
}
END_TEST

START_TEST(a_patient_job_runs_only_below_the_usual_price_until_its_time_runs_out) {
    const auto day = day_of([](int h) { return h < 8 ? 4 : 10; });
    ck_assert_int_eq(usual_price(day)->micro, Money::units(10).micro);
    const JobTerms t = terms_of("patient", 50, Nanos{hour.ns * 10});
    const auto bid = [&](Nanos left) { return strategy_bid(t, {{}, {}, left, day}); };
    ck_assert(bid(Nanos{hour.ns * 5}) < Money::units(10));
    ck_assert(bid(Nanos{hour.ns * 5}) > Money::units(4));
    ck_assert(bid(hour) == t.max_price);
    ck_assert(strategy_bid(t, {{}, {}, Nanos{hour.ns * 5}, {}}) == t.max_price);
    const JobTerms endless = terms_of("patient", 50);
    ck_assert(strategy_bid(endless, {{}, {}, {}, day}) < Money::units(10));
    ck_assert(strategy_bid(terms_of("patient", 3), {{}, {}, {}, day}) == Money::units(3));
}
END_TEST

START_TEST(a_strategy_is_named_or_refused) {
    ck_assert(parse_strategy("truthful") && parse_strategy("fixed") && parse_strategy("patient"));
    ck_assert_int_eq(parse_strategy("deadline:90")->runtime.ns, Nanos::from_s(90).ns);
    for (const char* bad : {"", "greedy", "deadline", "deadline:", "deadline:x", "deadline:-1",
                            "deadline:9h", "deadline:99999999999999999999"})
        ck_assert_msg(!parse_strategy(bad), "%s", bad);
    // What an older srun has sent, or another word, is truthful.
    ck_assert(strategy_of(terms_of("anything", 5)).kind == StrategyKind::truthful);
}
END_TEST

UNIT_SUITE(strategy, every_strategy_bids_at_most_the_maximum_price_and_more_than_nothing,
           a_higher_bid_more_time_and_less_work_never_lower_the_chance,
           a_deadline_is_met_by_the_least_bid_that_meets_it,
           a_patient_job_runs_only_below_the_usual_price_until_its_time_runs_out,
           a_strategy_is_named_or_refused);
