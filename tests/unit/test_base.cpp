// SPDX-License-Identifier: GPL-2.0-or-later
#include <cstdlib>
#include <set>

#include "kernel/base/fnv.hpp"
#include "kernel/base/ids.hpp"
#include "kernel/base/money.hpp"
#include "kernel/base/number.hpp"
#include "kernel/base/release.hpp"
#include "kernel/base/retry.hpp"
#include "kernel/base/rng.hpp"
#include "kernel/base/version.hpp"
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
    for (const char* text : {"", "-1", "+1", "1e3", "1.", ".5", "10EUR", "1 ", "0.1234567",
                             "1000000001", "99999999999"})
        ck_assert_msg(!parse_money(text).has_value(), "took '%s'", text);
}
END_TEST

START_TEST(a_span_bought_with_an_amount_never_costs_more) {
    // For random prices: the span costs at most the amount, and one nanosecond more would cost
    // more.
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
    for (const char* text : {"", "7", "n1.", "n1.x", "n1.0", "N1.7", "n1.-7", "n1.7 ", ".7",
                             "n1.99999999999999999999"})
        ck_assert_msg(!parse_job_id(text).has_value(), "took '%s'", text);
}
END_TEST

START_TEST(a_site_stands_before_what_is_of_another_one) {
    ck_assert_text(parse_job_id("n1.7")->text(), "n1.7");
    ck_assert_text(parse_job_id("uni.example:n1.7")->text(), "uni.example:n1.7");
    const std::string longest(64, 's');
    ck_assert_text(parse_job_id(longest + ":n1.7")->text(), longest + ":n1.7");
    for (const std::string& text :
         {std::string(":n1.7"), std::string("lab:"), std::string("lab:7"),
          std::string("lab:uni:n1.7"), std::string("l ab:n1.7"), longest + "s:n1.7"})
        ck_assert_msg(!parse_job_id(text).has_value(), "took '%s'", text.c_str());
    const auto [site, node] = of_site("lab:n3");
    ck_assert(site == "lab" && node == "n3");
    const auto [none, whole] = of_site("array=lab:n1.7");
    ck_assert(none.empty() && whole == "array=lab:n1.7");
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

START_TEST(a_whole_number_is_digits_from_the_first_character_to_the_last_and_fits_its_type) {
    ck_assert_int_eq(*whole_number<int64_t>("-9223372036854775808"), INT64_MIN);
    ck_assert_uint_eq(*whole_number<uint16_t>("65535"), 65535);
    ck_assert_uint_eq(*whole_number<uint64_t>("ff", 16), 255);
    for (const char* text : {"", " 1", "1 ", "+1", "-1", "0x1", "1.", "65536"})
        ck_assert(!whole_number<uint16_t>(text));
    ck_assert_int_eq(*leading_number<int64_t>("-1\n"), -1);
    ck_assert(!leading_number<uint64_t>("kB"));
    std::string_view range = "7f-80 rw";
    ck_assert_uint_eq(*take_number<uint64_t>(range, 16), 0x7f);
    ck_assert(range == "-80 rw");
    ck_assert(!take_number<uint64_t>(range, 16));
    ck_assert(range == "-80 rw");
}
END_TEST

START_TEST(a_hash_of_a_name_is_the_published_one) {
    ck_assert_uint_eq(fnv1a_32(""), 0x811c9dc5);
    ck_assert_uint_eq(fnv1a_32("foobar"), 0xbf9cf968);
    ck_assert(fnv1a_64("foobar") == 0x85944171f73967e8);
}
END_TEST

START_TEST(versions_of_one_step_may_run_together) {
    for (const auto& [a, b] : {std::pair{"0.1", "0.1"},
                               {"0.1 (abc)", "0.2 (def)"},
                               {"0.2.7", "0.1-1"},
                               {"1.9~rc1", "1.10+deb12"}})
        ck_assert_msg(may_run_together(a, b) && may_run_together(b, a), "%s, %s", a, b);
    for (const auto& [a, b] : {std::pair{"0.1", "0.3"},
                               {"0.9", "1.0"},
                               {"0.1", ""},
                               {"1", "1.0"},
                               {"0.x", "0.1"},
                               {"-1.0", "0.1"}})
        ck_assert_msg(!may_run_together(a, b) && !may_run_together(b, a), "%s, %s", a, b);
    ck_assert(may_run_together(version(), version()));
    ck_assert(release_of("0.2.7 (abc)") == "0.2.7");
    ck_assert(release_of("none").empty() && release_of("").empty());
}
END_TEST

UNIT_SUITE(base, a_whole_number_is_digits_from_the_first_character_to_the_last_and_fits_its_type,
           a_hash_of_a_name_is_the_published_one,
           those_who_failed_together_do_not_come_back_together, money_text_round_trips,
           money_refuses_what_is_not_a_plain_decimal, a_span_bought_with_an_amount_never_costs_more,
           job_ids_name_their_home, a_site_stands_before_what_is_of_another_one,
           below_covers_its_range_evenly, versions_of_one_step_may_run_together);
