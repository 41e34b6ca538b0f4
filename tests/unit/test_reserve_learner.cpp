// SPDX-License-Identifier: GPL-2.0-or-later
// An owner can learn a price from the market's prices. These tests check what he then asks.
#include "kernel/base/rng.hpp"
#include "market/core/reserve_learner.hpp"
#include "market/sim/reserve_trial.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using namespace souk::market;

START_TEST(the_best_fixed_price_is_found_and_asked_and_never_one_below_the_floor) {
    ReserveLearner learner(Money::units(2), 1);
    ck_assert_int_eq(learner.price().micro, Money::units(2).micro);  // nothing is known yet
    for (int hour = 0; hour < 100; ++hour) {
        learner.saw(Money::units(10), 60);
        learner.saw(Money::units(1), 600);  // below the floor: pays nothing whatever is asked
    }
    const auto best = learner.best();
    ck_assert(best.price > Money{9'900'000} && best.price <= Money::units(10));
    ck_assert(best.revenue > 990 && best.revenue <= 1'000);
    ck_assert(learner.price() > Money{9'500'000} && learner.price() <= Money::units(10));
    ReserveLearner dear(Money::units(20), 1);
    dear.saw(Money::units(10), 60);
    ck_assert_int_eq(dear.price().micro, Money::units(20).micro);
}
END_TEST

START_TEST(what_is_forgotten_counts_no_more) {
    ReserveLearner learner(Money{}, 1);
    learner.saw(Money::units(50), 60);
    learner.saw(Money::units(3), 600);
    ck_assert(learner.best().price > Money::units(49));
    learner.saw(Money::units(50), -60);
    ck_assert(learner.best().price <= Money::units(3));
    const Money last = learner.price();
    ck_assert(last > Money{});
    learner.saw(Money::units(3), -600);
    ck_assert(learner.price() == last);  // nothing is known any more: it stays
}
END_TEST

START_TEST(it_earns_nearly_what_the_best_fixed_price_does_whatever_prices_come) {
    // Constant, uniform, two levels by day and night, and a level that jumps each week.
    for (uint64_t seed = 1; seed <= 2; ++seed)
        for (int kind = 0; kind < 4; ++kind) {
            Rng rng(seed);
            std::vector<Money> prices;
            for (int64_t hour = 0; hour < 2'000; ++hour) {
                const int64_t drawn = rng.between(1, 60);
                const int64_t level = kind == 0   ? 20
                                      : kind == 1 ? drawn
                                      : kind == 2 ? (hour % 24 < 12 ? 8 : 30)
                                                  : 10 + hour / 168 % 4 * 10;
                prices.push_back(Money::units(level));
            }
            const auto o = sim::try_reserve(prices, Money{}, seed, ReserveLearner::default_bonus);
            ck_assert_msg(o.regret() < 0.05, "kind %d, seed %d: %f", kind, int(seed), o.regret());
            ck_assert(o.asked <= o.all);
        }
}
END_TEST

START_TEST(an_hour_costs_the_least_bid_that_has_a_place) {
    std::vector<sim::ReplayJob> jobs = {{0, 7'200, 7'200, 2, 0}, {0, 7'200, 7'200, 1, 1}};
    sim::ReplayTerms terms;
    terms.value = {Money::units(9), Money::units(4)};
    const auto schedule = sim::replay_greedy_migration(jobs, 2, terms);
    const auto prices = sim::hourly_prices(jobs, schedule, terms, 2);
    ck_assert_uint_ge(prices.size(), 3);
    ck_assert_int_eq(prices[0].micro, Money::units(9).micro);  // the dearer job has both CPUs
    ck_assert_int_eq(prices[2].micro, 0);                      // then one is free
}
END_TEST

UNIT_SUITE(reserve_learner, the_best_fixed_price_is_found_and_asked_and_never_one_below_the_floor,
           what_is_forgotten_counts_no_more,
           it_earns_nearly_what_the_best_fixed_price_does_whatever_prices_come,
           an_hour_costs_the_least_bid_that_has_a_place);
