// SPDX-License-Identifier: GPL-2.0-or-later
// How long a suspended job stays in memory, against every other time in hindsight.
#include "market/core/stop_record.hpp"

#include <vector>

#include "kernel/base/rng.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {

using market::StopRecord;
constexpr Nanos s(int64_t n) { return Nanos::from_s(n); }

struct Case {
    int64_t after_s, cost_s;
    bool wanted;
};

// Seconds that somebody waits when each is kept in memory for so long.
int64_t cost(const std::vector<Case>& cases, Nanos kept) {
    int64_t sum = 0;
    for (const Case& c : cases) sum += (s(c.after_s) <= kept) == c.wanted ? c.cost_s : 0;
    return sum;
}

}  // namespace

START_TEST(with_no_record_it_is_kept_for_as_long_as_the_disk_would_take) {
    StopRecord record;
    ck_assert(record.patience(s(7)) == s(7));
    for (size_t i = 1; i < StopRecord::enough; ++i) record.won(s(600), s(20));
    ck_assert(record.patience(s(7)) == s(7));
    // All win again after more than that, and nobody wants their memory.
    record.won(s(600), s(20));
    ck_assert(record.patience(s(7)) == Nanos::never());
}
END_TEST

START_TEST(ski_rental_costs_at_most_twice_the_best_time) {
    // In the worst case for it, the bid wins, or the memory is wanted, just after.
    for (int64_t carry = 1; carry < 50; ++carry)
        for (int64_t after = 1; after < 120; ++after) {
            const int64_t kept = StopRecord().patience(s(carry)).ns / 1'000'000'000;
            // A second of held memory counts as a second.
            const int64_t paid = after <= kept ? after : kept + carry;
            ck_assert_int_le(paid, 2 * std::min(after, carry));
        }
}
END_TEST

START_TEST(of_all_times_the_record_asks_for_one_that_would_have_cost_least) {
    for (uint64_t seed = 1; seed <= 300; ++seed) {
        Rng rng(seed);
        StopRecord record;
        std::vector<Case> cases;
        const auto n = static_cast<size_t>(rng.between(1, 12)) * StopRecord::enough;
        const int64_t long_s = rng.between(1, 100);
        for (size_t i = 0; i < n; ++i) {
            const Case c{rng.between(0, long_s), rng.between(1, 9), rng.chance(0.4)};
            cases.push_back(c);
            if (c.wanted)
                record.wanted(s(c.after_s), s(c.cost_s));
            else
                record.won(s(c.after_s), s(c.cost_s));
        }
        // The record is looked at with each twentieth case; what is asked is the best of then.
        const Nanos asked = record.patience(s(1));
        int64_t best = cost(cases, Nanos{-1});
        for (int64_t t = 0; t <= long_s; ++t) best = std::min(best, cost(cases, s(t)));
        const int64_t slack = 9 * static_cast<int64_t>(n / StopRecord::enough + 1);
        ck_assert_int_le(cost(cases, asked), best + slack);
        if (n == StopRecord::enough) ck_assert_int_eq(cost(cases, asked), best);
    }
}
END_TEST

START_TEST(what_has_changed_is_learned_and_the_record_is_bounded) {
    StopRecord record;
    for (size_t i = 0; i < StopRecord::kept_max; ++i) record.won(s(600), s(20));
    ck_assert(record.patience(s(20)) == Nanos::never());
    // From now on memory is short: it is wanted after a minute each time.
    for (size_t i = 0; i < StopRecord::kept_max; ++i) record.wanted(s(60), s(10));
    ck_assert(record.patience(s(20)) < s(60));
    for (size_t i = 0; i < StopRecord::kept_max; ++i) record.won(s(30), s(20));
    ck_assert(record.patience(s(20)) >= s(30));
}
END_TEST

UNIT_SUITE(stop_record, with_no_record_it_is_kept_for_as_long_as_the_disk_would_take,
           ski_rental_costs_at_most_twice_the_best_time,
           of_all_times_the_record_asks_for_one_that_would_have_cost_least,
           what_has_changed_is_learned_and_the_record_is_bounded);

}  // namespace souk::unit
