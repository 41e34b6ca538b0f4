// SPDX-License-Identifier: GPL-2.0-or-later
// Owners of a simulated market who ask what they said, or what they have learned; and jobs that lie
// beside strategies.
#include "market/sim/owners.hpp"

#include "market/sim/lies.hpp"
#include "market/sim/strategies.hpp"
#include "tests/unit/sim_world.hpp"

using namespace souk;
using namespace souk::sim;
using unit::drawn, unit::run;

namespace {

Imported workload(uint64_t seed) {
    return drawn(seed, [](ImportConfig& config) {
        config.jobs_max = 120;
        config.providers = 4;
        config.reservation = {Distribution::Kind::uniform, {1, 8}};
        config.interarrival = {Distribution::Kind::uniform, {0, 900}};
        config.run = {Distribution::Kind::uniform, {60, 3'000}};
    });
}

OwnerMix mix_of(const char* name) {
    auto mix = parse_owner_mix(name);
    ck_assert(mix.has_value());
    return std::move(*mix);
}

}  // namespace

START_TEST(a_mix_of_owners_has_a_name_and_fixed_ones_change_nothing) {
    for (const char* bad : {"", "+", "free", "auto+", "auto+fixed"})
        ck_assert(!parse_owner_mix(bad));
    const Imported w = workload(1);
    MarketRunOptions options;
    const RunOutcome plain = run(w, options);
    options.asks = asks_of(w.providers.size(), mix_of("fixed"), 1);
    const RunOutcome same = run(w, options);
    ck_assert(plain.jobs == same.jobs && plain.totals.providers == same.totals.providers);
    const auto both = asks_of(1'000, mix_of("fixed+auto"), 7);
    ck_assert(both == asks_of(1'000, mix_of("fixed+auto"), 7));
    const auto autos = std::count(both.begin(), both.end(), Asks::automatic);
    ck_assert(autos > 400 && autos < 600);
}
END_TEST

START_TEST(what_owners_earn_is_what_users_pay_whatever_they_ask) {
    for (const char* name : {"fixed", "auto", "fixed+auto"})
        for (uint64_t seed = 1; seed <= 5; ++seed) {
            const Imported w = workload(seed);
            MarketRunOptions options;
            options.asks = asks_of(w.providers.size(), mix_of(name), seed);
            const RunOutcome outcome = run(w, options);
            MoneySeconds paid, earned, surplus;
            for (const JobOutcome& job : outcome.jobs) paid.micro_s += job.paid.micro_s;
            for (const ProviderOutcome& p : outcome.providers) {
                earned.micro_s += p.earned.micro_s;
                surplus.micro_s += p.surplus.micro_s;
                // Nobody lends for less than it costs him.
                ck_assert(p.surplus.micro_s >= 0);
            }
            ck_assert(paid == earned && surplus == outcome.totals.providers);
            uint32_t owners = 0;
            for (const ByOwner& row : by_owner(w.providers, options.asks, outcome)) {
                owners += row.owners;
                ck_assert(row.used >= 0 && row.used <= 1 && row.earned >= row.surplus);
            }
            ck_assert_uint_eq(owners, w.providers.size());
        }
}
END_TEST

START_TEST(an_owner_learns_what_others_pay_and_does_not_hear_himself) {
    AutoPrice alone(Money::units(2), 1);
    for (int hour = 0; hour < 100; ++hour) ck_assert(alone.saw(alone.asked()) == Money::units(2));
    AutoPrice wanted(Money::units(2), 1);
    for (int hour = 0; hour < 200; ++hour) wanted.saw(Money::units(10));
    ck_assert(wanted.asked() > Money::units(8) && wanted.asked() <= Money::units(10));
    const market::Offer offers[] = {
        {100, Money::units(5)}, {100, Money::units(3)}, {200, Money::units(9)}, {80, std::nullopt}};
    ck_assert(*price_at(offers, 150) == Money::units(3));
    ck_assert(*price_at(offers, 200) == Money::units(9));
    ck_assert(!price_at(offers, 90));
}
END_TEST

START_TEST(what_a_job_gains_by_a_lie_is_reckoned_at_its_true_value_beside_strategies) {
    const Imported w = workload(2);
    MarketRunOptions options;
    options.solver.algorithm = "welfare";
    options.terms = terms_of(w.jobs, *parse_mix("truthful"), 6, 2);
    const Runs runs = [](const Imported& at, const MarketRunOptions& with) {
        return run(at, with);
    };
    const Cases with_terms = cases_of(w, options, runs, 6, false, 1);
    options.terms.clear();
    const Cases plain = cases_of(w, options, runs, 6, false, 1);
    ck_assert(!plain.empty() && with_terms.size() == plain.size());
    for (size_t i = 0; i < plain.size(); ++i) {
        ck_assert_double_eq_tol(plain[i].paid, with_terms[i].paid, 1);
        size_t same = 0;
        for (const LieTold& told : with_terms[i].by_lies) {
            ck_assert(lies[told.lie].suits_terms());
            for (const LieTold& other : plain[i].by_lies)
                if (other.lie == told.lie && lies[told.lie].later_s == 0) {
                    ++same;
                    ck_assert_double_eq_tol(other.gains[0], told.gains[0],
                                            1 + 1e-6 * plain[i].paid);
                }
        }
        ck_assert_uint_eq(same, 8);
    }
}
END_TEST

UNIT_SUITE(sim_owners, a_mix_of_owners_has_a_name_and_fixed_ones_change_nothing,
           what_owners_earn_is_what_users_pay_whatever_they_ask,
           an_owner_learns_what_others_pay_and_does_not_hear_himself,
           what_a_job_gains_by_a_lie_is_reckoned_at_its_true_value_beside_strategies);
