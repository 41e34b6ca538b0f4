// SPDX-License-Identifier: GPL-2.0-or-later
// Strategies in the simulator: who bids his value is as without them, and what each strategy
// promises is seen in what becomes of its jobs.
#include <algorithm>

#include "market/sim/strategies.hpp"
#include "tests/unit/sim_world.hpp"

using namespace souk;
using namespace souk::sim;
using unit::drawn, unit::run;

namespace {

// More work than the machines can do at once, in waves.
Imported workload(uint64_t seed) {
    return drawn(seed, [](ImportConfig& config) {
        config.jobs_max = 150;
        config.providers = 4;
        config.reservation = {Distribution::Kind::uniform, {1, 8}};
        config.speed = {Distribution::Kind::uniform, {50, 200}};
        config.interarrival = {Distribution::Kind::uniform, {0, 700}};
    });
}

Mix mix_of(const char* name) {
    auto mix = parse_mix(name);
    ck_assert(mix.has_value());
    return std::move(*mix);
}

}  // namespace

START_TEST(a_mix_has_names_and_what_is_none_is_refused) {
    ck_assert_uint_eq(mix_of("all").of.size(), 4);
    ck_assert(mix_of("pace+patient").of ==
              (std::vector{market::Strategy::pace, market::Strategy::patient}));
    for (const char* bad : {"", "+", "pace+", "greedy", "pace+all"}) ck_assert(!parse_mix(bad));
}
END_TEST

START_TEST(truthful_jobs_are_as_without_strategies) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        const Imported w = workload(seed);
        MarketRunOptions options;
        const RunOutcome plain = run(w, options);
        options.terms = terms_of(w.jobs, mix_of("truthful"), 6, seed);
        const RunOutcome same = run(w, options);
        ck_assert(plain.jobs == same.jobs);
        ck_assert(plain.totals.consumers == same.totals.consumers);
    }
}
END_TEST

START_TEST(who_waits_for_the_usual_price_pays_less_and_waits_longer) {
    double price[2] = {}, slowdown[2] = {};
    for (uint64_t seed = 1; seed <= 10; ++seed) {
        const Imported w = workload(seed);
        MarketRunOptions options;
        options.terms = terms_of(w.jobs, mix_of("truthful+patient"), 6, seed);
        const RunOutcome outcome = run(w, options);
        const auto rows = by_strategy(w.jobs, options.terms, outcome, 10);
        ck_assert_uint_eq(rows.size(), 2);
        for (size_t i = 0; i < 2; ++i) {
            ck_assert_uint_eq(rows[i].unfinished, 0);
            price[i] += rows[i].price;
            slowdown[i] += rows[i].bounded_slowdown;
        }
    }
    ck_assert_msg(price[1] < price[0] * 0.9 && slowdown[1] > slowdown[0], "%f %f, %f %f", price[0],
                  price[1], slowdown[0], slowdown[1]);
}
END_TEST

START_TEST(nobody_pays_more_than_his_value_and_all_end) {
    for (uint64_t seed = 1; seed <= 10; ++seed) {
        const Imported w = workload(seed);
        MarketRunOptions options;
        options.terms = terms_of(w.jobs, mix_of("all"), 6, seed);
        const RunOutcome outcome = run(w, options);
        for (size_t i = 0; i < w.jobs.size(); ++i) {
            const JobOutcome& out = outcome.jobs[i];
            ck_assert_int_ge(out.end_s, 0);
            // the slowest machine has speed 50
            const __int128 most = static_cast<__int128>(w.jobs[i].value.micro) * w.jobs[i].cpus *
                                  (2 * w.jobs[i].run_s + 2);
            ck_assert(out.paid.micro_s <= most);
        }
        uint32_t jobs = 0;
        for (const ByStrategy& row : by_strategy(w.jobs, options.terms, outcome, 10)) {
            jobs += row.jobs;
            ck_assert(row.in_time >= 0 && row.in_time <= 1 && row.bounded_slowdown >= 0.5);
        }
        ck_assert_uint_eq(jobs, w.jobs.size());
    }
}
END_TEST

UNIT_SUITE(sim_strategies, a_mix_has_names_and_what_is_none_is_refused,
           truthful_jobs_are_as_without_strategies,
           who_waits_for_the_usual_price_pays_less_and_waits_longer,
           nobody_pays_more_than_his_value_and_all_end);
