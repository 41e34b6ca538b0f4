// SPDX-License-Identifier: GPL-2.0-or-later
// A job is charged for the time that both its home and its place report. If they differ, the lesser
// counts.
#include <map>

#include "kernel/base/rng.hpp"
#include "market/core/use_check.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {

using namespace market;
namespace use = market::use_check;

constexpr Nanos s(int64_t n) { return Nanos::from_s(n); }

JobRecord on(const char* node, uint64_t epoch) {
    JobRecord r;
    use::begins(r, node, Epoch{epoch});
    return r;
}
JobUse word(uint64_t epoch, Nanos run, bool ended) {
    return {{"n1", 1}, Epoch{epoch}, run, {}, ended};
}

}  // namespace

START_TEST(a_home_and_a_place_that_agree_change_nothing) {
    JobRecord r = on("n2", 1);
    use::charged(r, s(1000), {5000});
    ck_assert(!use::heard(r, "n2", word(1, s(995), false)));
    ck_assert(!use::heard(r, "n2", word(1, s(991), true)));
    use::ended(r);
    ck_assert(!use::settle(r));
    ck_assert(r.stays.size() == 1 && r.stays[0].cost.micro == 5000);
}
END_TEST

START_TEST(what_the_place_has_not_measured_is_taken_back_while_the_job_runs) {
    JobRecord r = on("n2", 1);
    use::charged(r, s(1000), {5000});
    const auto d = use::heard(r, "n2", word(1, s(400), false));
    ck_assert(d && d->back == s(600) && d->cost.micro == 3000);
    ck_assert_text(d->node, "n2");
    ck_assert(!use::heard(r, "n2", word(1, s(400), false)));  // once
    // A word that comes late says less: it takes nothing more.
    ck_assert(!use::heard(r, "n2", word(1, s(100), false)));
    // A word about another stay, or from another node, does not count.
    ck_assert(!use::heard(r, "n3", word(1, s(1), true)) &&
              !use::heard(r, "n2", word(2, s(1), true)));
}
END_TEST

START_TEST(a_stay_is_settled_when_both_have_said_all_in_either_order) {
    for (const bool place_first : {true, false}) {
        JobRecord r = on("n2", 1);
        use::charged(r, s(100), {1000});
        if (place_first) ck_assert(!use::heard(r, "n2", word(1, s(50), true)));
        ck_assert(!use::settle(r));
        use::begins(r, "n3", Epoch{2});
        if (!place_first) {
            ck_assert(!use::settle(r));  // the market waits for the place's word
            ck_assert(!use::heard(r, "n2", word(1, s(50), true)));
        }
        const auto d = use::settle(r);
        ck_assert(d && d->node == "n2" && d->back == s(50) && d->cost.micro == 500);
        ck_assert(!use::settle(r));
        ck_assert(r.stays.size() == 1 && r.stays[0].node == "n3");
    }
}
END_TEST

START_TEST(a_place_that_measures_more_is_not_paid_for_it_and_that_is_counted) {
    JobRecord r = on("n2", 1);
    use::charged(r, s(100), {1000});
    ck_assert(!use::heard(r, "n2", word(1, s(5000), true)));
    use::ended(r);
    const auto d = use::settle(r);
    ck_assert(d && d->back.ns == 0 && d->cost.micro == 0 && d->measured == s(5000));
    ck_assert(!use::settle(r));
}
END_TEST

START_TEST(a_place_that_says_nothing_has_no_say) {
    JobRecord r = on("n2", 1);
    use::charged(r, s(100), {1000});
    use::begins(r, "n3", Epoch{2});
    use::charged(r, s(100), {1000});
    use::ended(r);
    ck_assert(!use::settle(r));
    ck_assert(r.stays.size() == 2);  // its word may still come
    for (uint64_t e = 3; e < 200; ++e) use::begins(r, "n2", Epoch{e});
    ck_assert_int_eq(r.stays.size(), use::stays_max);
}
END_TEST

START_TEST(a_homes_sum_grows_no_faster_than_the_markets_clock) {
    JobRecord r;
    ck_assert(use::believable(r, s(10), s(1'000'000)) > s(1'000'000'000));  // an old record
    use::believed(r, s(10), true, s(1'000'000));
    ck_assert(use::believable(r, s(10), s(1'000'060)) == s(70));
    ck_assert(use::believable(r, s(90), s(1'000'060)) == s(90));  // by the market's own clock
    ck_assert(use::believable(r, s(10), s(999'000)) == s(10));    // a clock that was set back
    // While the job runs, a report may say less time than has passed. The report of its end then
    // says all.
    use::believed(r, s(10), false, s(1'000'060));
    ck_assert(use::believable(r, s(10), s(1'000'100)) == s(110));
    // A job that stands still gathers no time that it could claim later.
    use::believed(r, s(50), true, s(1'000'100));
    use::believed(r, s(50), true, s(2'000'000));
    ck_assert(use::believable(r, s(50), s(2'000'001)) == s(51));
}
END_TEST

// A home and a place may report anything in any order. The charged time is never below zero, and
// never above the home's report. When both have reported all, it is no more than the place's report
// and the tolerance.
START_TEST(neither_side_alone_makes_a_charge) {
    Rng rng(8);
    for (int round = 0; round < 5'000; ++round) {
        JobRecord r;
        int64_t charged = 0, back = 0;
        uint64_t epoch = 0;
        std::map<uint64_t, Nanos> measured, said;
        const auto took = [&](const std::optional<use::Difference>& d) {
            if (d) back += d->cost.micro;
            return d.has_value();
        };
        for (int step = 0; step < 30; ++step) {
            if (epoch == 0 || rng.chance(0.2)) use::begins(r, "n2", Epoch{++epoch});
            if (rng.chance(0.6)) {
                const Nanos span = s(rng.between(-20, 200));
                const Nanos before = r.stays.back().run;
                const Money paid{
                    std::max<int64_t>(-r.stays.back().cost.micro, span.ns / 1'000'000)};
                use::charged(r, span, paid);
                charged += paid.micro;
                said[epoch] += r.stays.back().run - before;
            }
            if (rng.chance(0.6)) {
                const uint64_t of = 1 + rng.below(epoch);
                measured[of] = std::max(measured[of], s(rng.between(0, 400)));
                took(use::heard(r, "n2", word(of, measured[of], of < epoch)));
            }
            while (took(use::settle(r))) {
            }
            for (const Stay& stay : r.stays) ck_assert(stay.run.ns >= 0 && stay.cost.micro >= 0);
        }
        use::ended(r);
        for (uint64_t e = 1; e <= epoch; ++e) took(use::heard(r, "n2", word(e, measured[e], true)));
        while (took(use::settle(r))) {
        }
        ck_assert_int_ge(back, 0);
        ck_assert_int_ge(charged - back, 0);
        ck_assert(r.stays.size() == 1);
        ck_assert(r.stays[0].run <= measured[epoch] + use::tolerance(measured[epoch]));
    }
}
END_TEST

UNIT_SUITE(use_check, a_home_and_a_place_that_agree_change_nothing,
           what_the_place_has_not_measured_is_taken_back_while_the_job_runs,
           a_stay_is_settled_when_both_have_said_all_in_either_order,
           a_place_that_measures_more_is_not_paid_for_it_and_that_is_counted,
           a_place_that_says_nothing_has_no_say, a_homes_sum_grows_no_faster_than_the_markets_clock,
           neither_side_alone_makes_a_charge);

}  // namespace souk::unit
