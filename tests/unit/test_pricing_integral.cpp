// SPDX-License-Identifier: GPL-2.0-or-later
// Integrals and closed forms of prices against the definition, by brute force on small markets.
#include <algorithm>
#include <vector>

#include "kernel/base/rng.hpp"
#include "market/core/pricing.hpp"
#include "market/core/pricing_integral.hpp"
#include "market/core/pricing_ranked.hpp"
#include "market/core/pricing_unit.hpp"
#include "market/core/solver.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using namespace souk::market;

namespace {

// Computes prices by the definition and nothing else. For each running job, its bid falls from its
// value to 0. At each bid and each reserve that it passes, the greedy algorithm starts from an
// empty market without the job, and places all bids that are not below. `by_user`: the jobs of its
// user that rank after it are left out too.
// Long: the definition in one piece, as docs/market.md has it.
std::vector<Money> naive_integral(Allocator& market, bool by_user = false) {
    struct Place {
        const Allocator::Machine* machine;
        int64_t cpus, memory_mb;
        void take(int64_t some_cpus, int64_t some_mb) { cpus -= some_cpus, memory_mb -= some_mb; }
    };
    std::vector<Place> empty;
    std::vector<Money> reserves;
    market.machine_order().each([&](const MachineOrder::Entry& e) {
        const auto& m = market.machines()[e.machine];
        empty.push_back({&m, m.spec.cpus, m.spec.memory_mb});
        reserves.push_back(m.spec.reserve);
        for (const auto& g : m.guests)
            if (!market.jobs()[g.job].competing)
                empty.back().cpus -= g.cpus, empty.back().memory_mb -= g.memory_mb;
        return true;
    });
    std::vector<uint32_t> order;
    market.order().each([&](const JobOrder::Entry& e) { return order.push_back(e.job), true; });
    std::vector<Money> prices(market.jobs().size());
    for (uint32_t q = 0; q < market.jobs().size(); ++q) {
        const auto& payer = market.jobs()[q];
        if (payer.key().n == 0 || payer.slot == Allocator::none) continue;
        const auto& own = market.machines()[payer.slot];
        const uint32_t user = market.details(q).user;
        std::vector<Place> places = empty;
        const auto fits = [&](const Place& p, uint32_t j) {
            const auto& job = market.jobs()[j];
            return p.cpus >= job.cpus && p.memory_mb >= job.memory_mb &&
                   market.eligible(*p.machine, j);
        };
        const auto put = [&](uint32_t j) {
            const auto at = std::find_if(places.begin(), places.end(),
                                         [&](const Place& p) { return fits(p, j); });
            if (at == places.end()) return;
            at->cpus -= market.jobs()[j].cpus, at->memory_mb -= market.jobs()[j].memory_mb;
        };
        const auto speed_below = [&](Money level) {
            for (const Place& p : places)
                if (fits(p, q) && p.machine->spec.reserve < level)
                    return std::min(p.machine->spec.speed, own.spec.speed);
            return 0;
        };
        const auto turn = std::find_if(order.begin(), order.end(), [&](uint32_t j) {
            return !(market.jobs()[j].rank < payer.rank);
        });
        const auto is_own = [&](uint32_t j) { return by_user && market.details(j).user == user; };
        std::for_each(order.begin(), turn, put);
        // A payer that is not in the order holds its room, so it competes for that room: the others
        // choose anew, and those of its user have what they had without it.
        if (!payer.competing) {
            std::vector<Place> left = empty;
            places = empty;
            for (auto at = order.begin(); at != turn; ++at) {
                const std::vector<Place> were = places;
                put(*at);
                for (size_t p = 0; p < left.size() && is_own(*at); ++p)
                    left[p].take(were[p].cpus - places[p].cpus,
                                 were[p].memory_mb - places[p].memory_mb);
            }
            places = left;
            for (Place& p : places)
                if (p.machine == &own) p.take(-payer.cpus, -payer.memory_mb);
            for (auto at = order.begin(); at != turn; ++at)
                if (!is_own(*at)) put(*at);
        }
        auto next = turn;
        std::vector<Money> levels = reserves;
        for (const uint32_t j : order) levels.push_back(market.jobs()[j].value);
        levels.push_back(payer.value);
        std::sort(levels.begin(), levels.end(), std::greater<>());
        __int128 sum = 0;
        int32_t within = std::min(own.spec.speed, market.speed_top());
        for (const Money level : levels) {
            if (level > payer.value) continue;
            for (; next != order.end() && market.jobs()[*next].value >= level; ++next)
                if (*next != q && !(by_user && market.details(*next).user == user)) put(*next);
            const int32_t left = std::min(within, speed_below(level));
            sum += static_cast<__int128>(within - left) * level.micro;
            within = left;
        }
        const Money price{static_cast<int64_t>(sum / std::max(1, market.speed_top()))};
        prices[q] = std::min(std::max(price, own.spec.reserve), payer.value);
    }
    return prices;
}

START_TEST(the_integral_is_what_its_definition_gives_in_markets_of_every_kind) {
    // CPUs, memory, speeds, reserves, bars, pinned and protected jobs; a few machines, dozens, and
    // hundreds.
    Rng rng(123);
    for (int round = 0; round < 160; ++round) {
        Allocator market;
        Rules rules;
        if (rng.chance(0.3)) rules.min_stay = Nanos::from_s(5);
        market.set_rules(rules);
        const int64_t machines = round < 120   ? rng.between(1, 12)
                                 : round < 157 ? rng.between(15, 60)
                                               : 300;
        const int32_t cpus = static_cast<int32_t>(rng.between(1, 16));
        for (uint64_t i = 1; i <= static_cast<uint64_t>(machines); ++i) {
            ProviderSpec p;
            p.speed = static_cast<int32_t>(25 * rng.between(1, 4));
            p.reserve = Money::units(rng.chance(0.7) ? 1 : rng.between(0, 20));
            p.cpus = static_cast<int32_t>(rng.between(1, cpus));
            p.memory_mb = rng.between(0, 3000);
            p.accepting = rng.chance(0.95);
            market.add_provider(ProviderKey{i}, p);
        }
        uint64_t key = 1;
        for (int64_t now = 0; now < 3; ++now) {
            for (int64_t n = rng.between(1, 2 * machines); n > 0; --n) {
                JobDemand j;
                j.value = Money::units(rng.between(0, 40));
                j.cpus = static_cast<int32_t>(rng.between(1, std::max(1, cpus / 2)));
                j.memory_mb = rng.chance(0.3) ? 0 : rng.between(0, 1500);
                j.user = static_cast<uint32_t>(rng.below(4));
                j.arrival = Nanos::from_s(now);
                if (rng.chance(0.1))
                    j.barred = {ProviderKey{static_cast<uint64_t>(rng.between(1, machines))}};
                market.add_job(JobKey{key++}, j);
            }
            market.solve(Nanos::from_s(2 * now));
            for (uint32_t j = 0; j < market.jobs().size(); ++j) {
                const auto& job = market.jobs()[j];
                if (job.slot == Allocator::none || !rng.chance(0.1)) continue;
                JobDemand pinned;
                pinned.value = job.value, pinned.cpus = job.cpus, pinned.memory_mb = job.memory_mb;
                pinned.arrival = job.arrival(), pinned.state = job.state,
                pinned.place = market.place_of(j);
                pinned.user = market.details(j).user;
                pinned.pin = Pin::stay;
                market.change_job(j, pinned);
            }
        }
        market.solve(Nanos::from_s(6));
        for (const bool by_user : {false, true}) {
            const auto expected = naive_integral(market, by_user),
                       got = critical_prices_by_integral(market, by_user),
                       all = critical_prices(market, by_user);
            for (size_t j = 0; j < market.jobs().size(); ++j) {
                if (market.jobs()[j].slot == Allocator::none) continue;
                std::vector<uint32_t> one{static_cast<uint32_t>(j)};
                std::vector<Money> alone(market.jobs().size());
                integral_prices_of(market, alone, one, 0, by_user);
                ck_assert(alone[j] == expected[j]);
                ck_assert_msg(got[j] == expected[j] && all[j] == expected[j],
                              "round %d job %d pays %s, by the definition %s", round,
                              static_cast<int>(j), format_money(got[j]).c_str(),
                              format_money(expected[j]).c_str());
            }
        }
    }
}
END_TEST

// One CPU each and memory for all; bars, pinned and protected jobs, speeds and reserves as they
// come.
void fill_with_units(Allocator& market, Rng& rng, int64_t machines) {
    Rules rules;
    if (rng.chance(0.3)) rules.min_stay = Nanos::from_s(5);
    market.set_rules(rules);
    const int64_t speeds = rng.between(1, 6), reserves = rng.chance(0.5) ? 1 : 25,
                  job_mb = rng.chance(0.5) ? 0 : 100;
    const double bars = rng.chance(0.3) ? 0 : rng.unit() * 0.6, pins = rng.unit() * 0.4;
    const int64_t cpus = rng.between(1, 6);
    for (uint64_t i = 1; i <= static_cast<uint64_t>(machines); ++i) {
        ProviderSpec p;
        p.speed = static_cast<int32_t>(20 * rng.between(1, speeds));
        p.reserve = Money::units(rng.between(1, reserves));
        p.cpus = static_cast<int32_t>(rng.between(1, cpus));
        p.memory_mb = 100 * p.cpus + (rng.chance(0.5) ? 0 : rng.between(0, 150));
        p.accepting = rng.chance(0.95);
        market.add_provider(ProviderKey{i}, p);
    }
    uint64_t key = 1;
    for (int64_t now = 0; now < 3; ++now) {
        for (int64_t n = rng.between(1, 2 * machines * cpus / 2); n > 0; --n) {
            JobDemand j;
            j.value = Money::units(rng.between(0, 40));
            j.memory_mb = rng.chance(0.98) ? rng.between(0, job_mb) : rng.between(0, 110);
            j.user = static_cast<uint32_t>(rng.below(8));
            j.arrival = Nanos::from_s(now);
            while (rng.chance(bars) && j.barred.size() < 20)
                j.barred.push_back(
                    ProviderKey{static_cast<uint64_t>(rng.between(1, machines + 1))});
            market.add_job(JobKey{key++}, j);
        }
        market.solve(Nanos::from_s(2 * now));
        for (uint32_t j = 0; j < market.jobs().size(); ++j) {
            const auto& job = market.jobs()[j];
            if (!rng.chance(pins)) continue;
            JobDemand s;
            s.value = rng.chance(0.5) ? job.value : Money::units(rng.between(0, 40));
            s.arrival = job.arrival();
            if (market.details(j).barred) s.barred = *market.details(j).barred;
            s.user = market.details(j).user;
            const bool runs = job.slot != Allocator::none;
            s.pin = rng.chance(0.7) ? Pin::stay : runs ? Pin::free : Pin::frozen;
            s.memory_mb =
                s.pin == Pin::stay && rng.chance(0.1) ? rng.between(0, 500) : job.memory_mb;
            s.state = s.pin == Pin::stay || runs ? JobState::running : JobState::waiting;
            const ProviderKey any{static_cast<uint64_t>(rng.between(1, machines))};
            s.place = runs && rng.chance(0.7) ? market.place_of(j) : any;
            market.change_job(j, s);
        }
    }
    market.solve(Nanos::from_s(6));
}

START_TEST(where_each_job_needs_one_cpu_every_price_has_a_closed_form) {
    Rng rng(321);
    size_t given = 0, left = 0, with_bars = 0, not_competing = 0;
    for (int round = 0; round < 1'500; ++round) {
        Allocator market;
        fill_with_units(market, rng, round % 100 == 99 ? 80 : rng.between(1, 12));
        std::vector<bool> done;
        auto closed = ranked_prices(market, done);
        unit_prices(market, closed, done);
        const auto integral = critical_prices_by_integral(market);
        const auto expected = round % 10 == 0 ? naive_integral(market) : integral;
        for (size_t j = 0; j < market.jobs().size(); ++j) {
            const auto& job = market.jobs()[j];
            if (job.slot == Allocator::none) continue;
            ++(done[j] ? given : left);
            if (!done[j]) continue;
            with_bars += job.bars;
            not_competing += !job.competing;
            ck_assert_msg(closed[j] == integral[j] && integral[j] == expected[j],
                          "round %d job %d pays %s, by the integral %s", round, static_cast<int>(j),
                          format_money(closed[j]).c_str(), format_money(integral[j]).c_str());
        }
    }
    ck_assert_msg(given > 10'000 && with_bars > 3'000 && not_competing > 3'000 && left < given,
                  "%zu were given (%zu with bars, %zu that do not compete), %zu were not", given,
                  with_bars, not_competing, left);
}
END_TEST

// The closed forms give prices wherever ranks decide everything, also for a user with lower ranked
// jobs of its own. They leave all other prices to the integral.
START_TEST(where_users_are_bidders_the_closed_forms_are_what_the_integral_gives) {
    Rng rng(654);
    size_t given = 0, left = 0, ranked = 0, pinned = 0;
    for (int round = 0; round < 1'500; ++round) {
        Allocator market;
        fill_with_units(market, rng, rng.between(1, 12));
        std::vector<bool> done;
        auto closed = ranked_prices(market, done, true);
        for (size_t j = 0; j < done.size(); ++j) {
            ranked += done[j];
            pinned += done[j] && !market.jobs()[j].competing;
        }
        unit_prices(market, closed, done, true);
        const auto integral = critical_prices_by_integral(market, true);
        const auto expected = round % 10 == 0 ? naive_integral(market, true) : integral;
        for (size_t j = 0; j < done.size(); ++j) {
            if (market.jobs()[j].slot == Allocator::none) continue;
            ++(done[j] ? given : left);
            if (!done[j]) continue;
            ck_assert_msg(closed[j] == integral[j] && integral[j] == expected[j],
                          "round %d job %d pays %s, by the integral %s", round, static_cast<int>(j),
                          format_money(closed[j]).c_str(), format_money(integral[j]).c_str());
        }
    }
    ck_assert_msg(ranked > 2'500 && pinned > 400 && given > ranked + 500 && left > 500,
                  "%zu were given, %zu of them by ranks, %zu pinned; %zu were not", given, ranked,
                  pinned, left);
}
END_TEST

// 5,000 speeds and 1,000 jobs of one user: more steps than a decision may take.
START_TEST(where_prices_by_user_would_take_too_long_each_job_is_priced_for_itself) {
    Allocator market;
    for (uint64_t i = 1; i <= 5'000; ++i) {
        ProviderSpec p;
        p.speed = static_cast<int32_t>(i);
        p.memory_mb = 1;
        market.add_provider(ProviderKey{i}, p);
    }
    for (uint64_t i = 1; i <= 1'000; ++i) {
        JobDemand j;
        j.value = Money::units(static_cast<int64_t>(i));
        market.add_job(JobKey{i}, j);
    }
    market.solve(Nanos{0});
    std::vector<bool> done;
    ck_assert(ranked_prices(market, done, true) == ranked_prices(market, done, false));
    for (uint64_t i = 1; i <= 300; ++i) market.remove_job(market.find_job(JobKey{i}));
    market.solve(Nanos{0});  // 700 x 5,000 is less: the user is alone and pays nothing
    for (const Money price : ranked_prices(market, done, true)) ck_assert(price == Money{});
}
END_TEST

START_TEST(prices_that_were_kept_are_those_that_would_be_reckoned_anew) {
    for (const char* algorithm : {"greedy_migration", "proportional_share"})
        for (uint64_t seed = 1; seed <= 30; ++seed) {
            Rng rng(seed);
            Solver s;
            SolverOptions o;
            o.algorithm = algorithm;
            if (seed % 3 == 0) o.min_stay = Nanos::from_s(7);
            ck_assert(s.set_options(o).has_value());
            for (uint64_t p = 1; p <= 4; ++p) {
                ProviderSpec m;
                m.speed = static_cast<int32_t>(50 * rng.between(1, 3));
                m.cpus = static_cast<int32_t>(seed % 2 ? 1 : rng.between(1, 4));
                m.memory_mb = 1'000;
                s.add_provider(ProviderKey{p}, m);
            }
            for (int t = 1; t <= 60; ++t) {
                JobDemand j;
                j.value = Money::units(rng.between(1, 30));
                j.cpus = static_cast<int32_t>(seed % 2 ? 1 : rng.between(1, 2));
                j.user = static_cast<uint32_t>(rng.between(1, 3));
                if (rng.chance(0.3)) s.add_job(JobKey{static_cast<uint64_t>(t)}, j);
                if (rng.chance(0.2)) s.remove_job(JobKey{static_cast<uint64_t>(rng.between(1, t))});
                if (rng.chance(0.2))
                    s.change_value(JobKey{static_cast<uint64_t>(rng.between(1, t))}, j.value);
                // kept from before the solve, where nothing comes of it
                if (rng.chance(0.5)) (void)s.payments();
                s.solve(Nanos::from_s(t));
                const auto kept = s.payments();
                ck_assert(s.set_options(o).has_value());
                const auto anew = s.payments();
                ck_assert_uint_eq(kept.size(), anew.size());
                for (size_t i = 0; i < kept.size(); ++i)
                    ck_assert(kept[i].job == anew[i].job && kept[i].provider == anew[i].provider &&
                              kept[i].price == anew[i].price);
            }
        }
}
END_TEST

}  // namespace

UNIT_SUITE(pricing_integral, the_integral_is_what_its_definition_gives_in_markets_of_every_kind,
           where_each_job_needs_one_cpu_every_price_has_a_closed_form,
           where_users_are_bidders_the_closed_forms_are_what_the_integral_gives,
           where_prices_by_user_would_take_too_long_each_job_is_priced_for_itself,
           prices_that_were_kept_are_those_that_would_be_reckoned_anew);
