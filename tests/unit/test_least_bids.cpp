// SPDX-License-Identifier: GPL-2.0-or-later
// LeastBids answers for many needs at once what a place costs, and what providers hold. These tests
// compare it with the simple way, on random markets.
#include <map>

#include "kernel/base/rng.hpp"
#include "market/core/least_bids.hpp"
#include "market/core/supply.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using namespace souk::market;

namespace {

ProviderSpec random_provider(Rng& rng, int32_t cpus) {
    ProviderSpec p;
    p.speed = static_cast<int32_t>(25 * rng.between(1, 4));
    p.reserve = rng.chance(0.9) ? Money{rng.between(0, 20) * 500'000} : money_max;
    p.cpus = static_cast<int32_t>(rng.between(1, cpus));
    p.memory_mb = rng.between(0, 3'000);
    p.accepting = rng.chance(0.95);
    return p;
}

JobDemand random_job(Rng& rng, int32_t cpus, int64_t machines, int64_t now) {
    JobDemand j;
    j.value = rng.chance(0.98) ? Money{rng.between(0, 80) * 500'000} : money_max;
    j.cpus = static_cast<int32_t>(rng.between(1, cpus));
    j.memory_mb = rng.chance(0.3) ? 0 : rng.between(0, 1'500);
    j.arrival = Nanos::from_s(now);
    if (rng.chance(0.1)) j.barred = {ProviderKey{static_cast<uint64_t>(rng.between(1, machines))}};
    return j;
}

void pin_some(Rng& rng, Allocator& market) {
    for (uint32_t j = 0; j < market.jobs().size(); ++j) {
        const auto& job = market.jobs()[j];
        if (job.key().n == 0 || job.slot == Allocator::none || !rng.chance(0.1)) continue;
        JobDemand pinned;
        pinned.value = job.value, pinned.cpus = job.cpus, pinned.memory_mb = job.memory_mb;
        pinned.arrival = job.arrival(), pinned.state = job.state, pinned.place = market.place_of(j);
        pinned.pin = Pin::stay;
        market.change_job(j, pinned);
    }
}

}  // namespace

START_TEST(the_least_bid_for_a_need_is_the_same_however_many_are_asked_for) {
    Rng rng(31);
    size_t found = 0, none = 0, barred_ones = 0;
    for (int round = 0; round < 60; ++round) {
        Allocator market;
        LeastBids bids;
        const int64_t machines = rng.between(1, 30);
        const int32_t cpus = static_cast<int32_t>(rng.between(1, 8));
        for (uint64_t i = 1; i <= static_cast<uint64_t>(machines); ++i)
            market.add_provider(ProviderKey{i}, random_provider(rng, cpus));
        uint64_t key = 1;
        for (int64_t now = 0; now < 4; ++now) {  // the same LeastBids, while the market changes
            for (int64_t n = rng.between(1, 3 * machines); n > 0; --n)
                market.add_job(JobKey{key++}, random_job(rng, cpus, machines, now));
            market.solve(Nanos::from_s(now));
            pin_some(rng, market);
            market.solve(Nanos::from_s(now));
            for (int asked = 0; asked < 150; ++asked) {
                const auto need = static_cast<int32_t>(rng.between(1, cpus + 1));
                const int64_t mb = rng.chance(0.2) ? 0 : rng.between(0, 3'200);
                std::vector<ProviderKey> barred;
                for (int64_t b = rng.chance(0.7) ? 0 : rng.between(1, machines); b > 0; --b)
                    barred.push_back(ProviderKey{static_cast<uint64_t>(rng.between(1, machines))});
                const auto expected = LeastBids::by_walk(market, need, mb, barred);
                const auto got = bids.find(market, need, mb, barred);
                ck_assert_msg(got == expected, "round %d: %d CPUs and %ld MB cost %s, by a walk %s",
                              round, need, static_cast<long>(mb),
                              got ? format_money(*got).c_str() : "nothing will do",
                              expected ? format_money(*expected).c_str() : "nothing will do");
                ++(got ? found : none);
                barred_ones += got && !barred.empty();
            }
        }
    }
    ck_assert(found > 10'000 && none > 2'000 && barred_ones > 2'000);
}
END_TEST

START_TEST(what_providers_hold_together_is_what_a_look_at_each_says) {
    Rng rng(37);
    size_t some = 0, none = 0;
    for (int round = 0; round < 300; ++round) {
        std::vector<Supply::One> all(static_cast<size_t>(rng.between(0, 40)));
        for (Supply::One& one : all)
            one = {static_cast<int32_t>(rng.between(1, 8)), rng.between(0, 10) * 100,
                   Money::units(rng.between(0, 9))};
        Supply supply, backwards;
        for (const auto& one : all) supply.add(one);
        for (size_t i = all.size(); i-- > 0;) backwards.add(all[i]);
        ck_assert(supply == backwards && supply.empty() == all.empty());
        for (int32_t cpus = 0; cpus <= 9; ++cpus)
            for (int64_t mb = 0; mb <= 1'100; mb += 50) {
                std::optional<Money> least;
                for (const auto& one : all)
                    if (one.cpus >= cpus && one.memory_mb >= mb && (!least || one.reserve < *least))
                        least = one.reserve;
                ck_assert(supply.least_reserve(cpus, mb) == least);
                ++(least ? some : none);
            }
        int32_t cpus = 0;
        int64_t mb = 0;
        for (const auto& one : all)
            cpus = std::max(cpus, one.cpus), mb = std::max(mb, one.memory_mb);
        ck_assert_int_eq(supply.most_cpus(), cpus);
        ck_assert_int_eq(supply.most_memory_mb(), mb);
    }
    ck_assert(some > 1'000 && none > 1'000);
}
END_TEST

UNIT_SUITE(least_bids, the_least_bid_for_a_need_is_the_same_however_many_are_asked_for,
           what_providers_hold_together_is_what_a_look_at_each_says);
