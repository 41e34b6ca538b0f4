// SPDX-License-Identifier: GPL-2.0-or-later
#include <cstdlib>
#include <set>

#include "kernel/base/ids.hpp"
#include "kernel/base/money.hpp"
#include "kernel/base/retry.hpp"
#include "kernel/base/rng.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;

START_TEST(money_text_round_trips) {
    for (const char* text : {"0", "40", "0.25", "1000000000", "0.000001"}) {
        const auto m = parse_money(text);
        ck_assert(m.has_value());
        ck_assert_text(format_money(*m), text);
    }
    ck_assert_text(format_money(Money{-1'500'000}), "-1.5");
    ck_assert_text(format_money(Money{INT64_MIN}), "-9223372036854.775808");
}
END_TEST

START_TEST(money_refuses_what_is_not_a_plain_decimal) {
    for (const char* text :
         {"", "-1", "+1", "1e3", "1.", ".5", "10EUR", "1 ", "0.1234567", "1000000001", "99999999999"})
        ck_assert_msg(!parse_money(text).has_value(), "took '%s'", text);
}
END_TEST

START_TEST(a_span_bought_with_an_amount_never_costs_more) {
    // For random prices: the span costs at most the amount, and one nanosecond more would cost more.
    Rng rng(1);
    for (int i = 0; i < 20'000; ++i) {
        const Money amount{rng.between(0, 5'000'000'000)};
        const Money price{rng.between(1, money_max.micro)};
        const int64_t cpus = rng.between(1, 512);
        const Nanos span = span_for(amount, price, cpus);
        ck_assert(cost_of(price, cpus, span) <= amount);
        if (span != Nanos::never()) ck_assert(cost_of(price, cpus, span + Nanos{1}) > amount);
    }
}
END_TEST

START_TEST(job_ids_name_their_home) {
    ck_assert(*parse_job_id("n1.7") == (JobId{"n1", 7}));
    ck_assert(*parse_job_id("7", "n2") == (JobId{"n2", 7}));
    for (const char* text : {"", "7", "n1.", "n1.x", "n1.0", "N1.7", "n1.-7", "n1.7 ", ".7", "n1.99999999999999999999"})
        ck_assert_msg(!parse_job_id(text).has_value(), "took '%s'", text);
}
END_TEST

START_TEST(below_covers_its_range_evenly) {
    Rng rng(42);
    int hits[7] = {};
    for (int i = 0; i < 70'000; ++i) ++hits[rng.below(7)];
    for (const int h : hits) ck_assert_int_lt(std::abs(h - 10'000), 500);
}
END_TEST

START_TEST(those_who_failed_together_do_not_come_back_together) {
    std::set<int64_t> firsts, later;
    for (uint64_t seed = 0; seed < 1'000; ++seed) {
        RetryPause pause(Nanos::from_ms(50), Nanos::from_s(2), seed);
        int64_t most = 50'000'000;
        for (int i = 0; i < 12; ++i) {
            const int64_t ns = pause.next().ns;
            ck_assert(ns >= most / 2 && ns <= most);
            if (i == 0) firsts.insert(ns / 100'000);
            if (i == 11) later.insert(ns / 10'000'000);
            most = std::min<int64_t>(2 * most, 2'000'000'000);
        }
        pause.reset();
        ck_assert_int_le(pause.next().ns, 50'000'000);
    }
    ck_assert_uint_ge(firsts.size(), 200);  // of 250 tenths of a millisecond
    ck_assert_uint_ge(later.size(), 90);    // of 100 hundredths of a second
}
END_TEST

UNIT_SUITE(base, those_who_failed_together_do_not_come_back_together, money_text_round_trips, money_refuses_what_is_not_a_plain_decimal,
           a_span_bought_with_an_amount_never_costs_more, job_ids_name_their_home, below_covers_its_range_evenly);
