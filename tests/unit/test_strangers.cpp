// SPDX-License-Identifier: GPL-2.0-or-later
#include <algorithm>
#include <map>
#include <vector>

#include "kernel/base/rng.hpp"
#include "kernel/sys/net/strangers.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;

START_TEST(who_fills_the_port_fills_his_own_share_alone) {
    const Strangers::Bounds bounds{40, 12};
    Strangers strangers(bounds);
    Rng rng(5);
    std::map<uint64_t, std::pair<std::string, Nanos>> in;
    const auto held = [&](const std::string& host) {
        return static_cast<size_t>(
            std::ranges::count_if(in, [&](auto& one) { return one.second.first == host; }));
    };
    bool for_own = false, for_another = false;
    for (uint64_t number = 1; number < 20'000; ++number) {
        const Nanos now = Nanos::from_ms(static_cast<int64_t>(number) * 200);
        const bool leaves = rng.below(8) == 0;
        if (leaves && !in.empty()) {
            const auto at = std::next(in.begin(), static_cast<long>(rng.below(in.size())));
            strangers.gone(at->first);
            in.erase(at);
            continue;
        }
        // One address sends half of them, and the others come as they like.
        const std::string host = "h" + std::to_string(rng.below(2) == 0 ? 0 : rng.below(9));
        const auto taken = strangers.take(number, host, now);
        if (!taken.in) {  // whoever would go has not had his second yet
            const bool own = held(host) == bounds.host;
            ck_assert(own || in.size() == bounds.all);
            size_t most = 0;
            for (const auto& [other, one] : in) most = std::max(most, held(one.first));
            bool is_young = false;
            for (const auto& [other, one] : in)
                is_young |= now - one.second < Strangers::grace &&
                            (own ? one.first == host : held(one.first) == most);
            ck_assert(is_young);
            continue;
        }
        ck_assert(taken.goes.has_value() == (held(host) == bounds.host || in.size() == bounds.all));
        if (taken.goes) {
            const auto [of, came] = in.at(*taken.goes);
            const bool own = held(host) == bounds.host;
            (own ? for_own : for_another) = true;
            ck_assert(!own || of == host);
            for (const auto& [other, one] : in) {
                ck_assert(held(of) >= held(one.first));
                ck_assert(one.first != of || one.second >= came);
            }
            in.erase(*taken.goes);
        }
        in[number] = {host, now};
        ck_assert_uint_eq(strangers.size(), in.size());
    }
    ck_assert(for_own && for_another);
    strangers.gone(1'000'000);
    const auto [first, one] = *in.begin();
    ck_assert(!strangers.since(one.second - Nanos{1}).has_value());
    ck_assert_uint_eq(strangers.since(one.second).value(), first);
}
END_TEST

START_TEST(each_has_a_second_before_another_takes_its_place) {
    Strangers strangers({8, 4});
    const Nanos now = Nanos::from_s(100), ms = Nanos::from_ms(1);
    for (uint64_t n = 1; n <= 4; ++n) ck_assert(strangers.take(n, "h", now).in);
    ck_assert(!strangers.take(5, "h", now + Strangers::grace - ms).in);
    ck_assert_uint_eq(strangers.size(), 4);
    const auto taken = strangers.take(6, "h", now + Strangers::grace);
    ck_assert(taken.in && taken.goes == 1U);
}
END_TEST

START_TEST(who_comes_too_often_is_not_taken_and_the_others_are) {
    Strangers strangers({1'000, 10});
    uint64_t number = 0;
    size_t taken = 0;
    // Each leaves at once, a thousand times in each of twenty seconds.
    for (int64_t ms = 0; ms < 20'000; ++ms) {
        const auto his = strangers.take(++number, "flood", Nanos::from_ms(ms));
        taken += his.in;
        strangers.gone(number);
        if (ms % 500 == 0) {
            ck_assert(
                strangers.take(++number, "h" + std::to_string(ms % 3), Nanos::from_ms(ms)).in);
            strangers.gone(number);
        }
    }
    ck_assert_uint_ge(taken, 200);
    ck_assert_uint_le(taken, 10 * (20 + Strangers::burst_s) + 1);
}
END_TEST

UNIT_SUITE(strangers, each_has_a_second_before_another_takes_its_place,
           who_fills_the_port_fills_his_own_share_alone,
           who_comes_too_often_is_not_taken_and_the_others_are);
