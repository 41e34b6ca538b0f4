// SPDX-License-Identifier: GPL-2.0-or-later
// Prices against their definitions, by brute force on small markets.
#include <algorithm>
#include <functional>
#include <map>
#include <vector>

#include "kernel/base/rng.hpp"
#include "market/core/pricing.hpp"
#include "market/core/pricing_integral.hpp"
#include "market/core/pricing_unit.hpp"
#include "market/core/solver.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using namespace souk::market;

namespace {

struct Instance {
    std::vector<JobSpec> jobs;            // key is index + 1
    std::vector<ProviderSpec> providers;  // likewise
};

struct Outcome {
    int32_t speed = 0;  // 0: not running
    Money price;
};

Solver solved(const Instance& in, const char* pricing = "critical") {
    Solver s;
    SolverOptions o;
    o.pricing = pricing;
    ck_assert(s.set_options(o).has_value());
    for (size_t i = 0; i < in.providers.size(); ++i)
        ck_assert(s.add_provider(ProviderKey{i + 1}, in.providers[i]));
    for (size_t i = 0; i < in.jobs.size(); ++i) ck_assert(s.add_job(JobKey{i + 1}, in.jobs[i]));
    s.solve(Nanos{0});
    return s;
}

Outcome outcome(const Instance& in, size_t job) {
    const Solver s = solved(in);
    const JobSpec j = *s.job(JobKey{job + 1});
    if (j.state != JobState::running) return {};
    return {s.provider(j.place)->speed, *s.price(JobKey{job + 1})};
}

int32_t speed_top(const Instance& in) {
    int32_t top = 0;
    for (const auto& p : in.providers) top = std::max(top, p.speed);
    return top;
}

struct Shape {
    int64_t reserve;
    int cpus_job, cpus_machine, memory_job, memory_machine, speeds;
    int64_t reserve_most = 0;  // machines ask from `reserve` to this
};

Instance random_instance(Rng& rng, const Shape& s) {
    Instance in;
    for (int64_t n = rng.between(1, 4); n > 0; --n) {
        ProviderSpec p;
        p.reserve =
            Money::units(s.reserve_most > 0 ? rng.between(s.reserve, s.reserve_most) : s.reserve);
        p.cpus = static_cast<int32_t>(rng.between(1, s.cpus_machine));
        p.memory_mb = rng.between(1, s.memory_machine);
        p.speed = static_cast<int32_t>(40 * rng.between(1, s.speeds));
        in.providers.push_back(p);
    }
    for (int64_t n = rng.between(1, 8); n > 0; --n) {
        JobSpec j;
        j.value = Money::units(rng.between(1, 9));
        j.cpus = static_cast<int32_t>(rng.between(1, s.cpus_job));
        j.memory_mb = s.memory_job ? rng.between(0, s.memory_job) : 0;
        j.arrival = Nanos::from_s(rng.between(0, 3));
        in.jobs.push_back(j);
    }
    return in;
}

// Where the theorem holds: no reserves, or one speed.
constexpr Shape truthful_shapes[] = {
    {0, 1, 1, 0, 9, 4},    {3, 1, 2, 0, 9, 1},    {0, 1, 3, 0, 9, 3},
    {0, 3, 4, 0, 9, 3},    {0, 2, 4, 5, 8, 2},    {2, 3, 4, 5, 8, 1},
    {0, 1, 2, 0, 9, 1, 8}, {0, 3, 4, 0, 9, 1, 8}, {0, 2, 4, 5, 8, 1, 8},
};

START_TEST(under_critical_no_job_gains_by_misreporting_its_value) {
    for (const Shape& shape : truthful_shapes) {
        Rng rng(20260101);
        for (int round = 0; round < 60; ++round) {
            Instance in = random_instance(rng, shape);
            const int64_t top = speed_top(in);
            for (size_t j = 0; j < in.jobs.size(); ++j) {
                const Money truth = in.jobs[j].value;
                auto utility = [&](const Outcome& o) {  // x top, in micro-units
                    return o.speed ? truth.micro * o.speed - o.price.micro * top : 0;
                };
                const int64_t honest = utility(outcome(in, j));
                ck_assert(honest >= 0);
                for (int64_t half = 0; half <= 22; ++half) {
                    in.jobs[j].value = Money{half * 500'000};
                    const int64_t gain = utility(outcome(in, j)) - honest;
                    // prices round down
                    ck_assert_msg(gain <= top, "shape %d round %d job %d bids %d/2: gains %ld",
                                  static_cast<int>(&shape - truthful_shapes), round,
                                  static_cast<int>(j), static_cast<int>(half),
                                  static_cast<long>(gain));
                }
                in.jobs[j].value = truth;
            }
        }
    }
}
END_TEST

START_TEST(critical_is_the_integral_over_the_bids_at_which_the_speed_changes) {
    for (const Shape& shape : truthful_shapes) {
        Rng rng(777);
        for (int round = 0; round < 80; ++round) {
            Instance in = random_instance(rng, shape);
            for (size_t j = 0; j < in.jobs.size(); ++j) {
                const Money bid = in.jobs[j].value;
                const Outcome o = outcome(in, j);
                int64_t sum = 0;
                int32_t speed = 0;
                // bids between the whole ones: every jump is at a whole one
                for (int64_t k = 0; k < 10; ++k) {
                    in.jobs[j].value = Money{k * 1'000'000 + 500'000};
                    const int32_t faster = std::min(outcome(in, j).speed, o.speed);
                    ck_assert(faster >= speed);  // monotone
                    sum += (faster - speed) * std::min(k * 1'000'000, bid.micro);
                    speed = faster;
                }
                in.jobs[j].value = bid;
                if (o.speed) ck_assert_int_eq(o.price.micro, sum / speed_top(in));
            }
        }
    }
}
END_TEST

START_TEST(ranked_jobs_pay_the_formula_in_which_the_reserve_is_a_bid_as_well) {
    Rng rng(5);
    for (int round = 0; round < 300; ++round) {
        const int64_t reserve = rng.between(0, 4);
        Instance in = random_instance(rng, {reserve, 1, 3, 0, 9, 5});
        std::vector<int64_t> speeds, values;
        for (const auto& p : in.providers)
            speeds.insert(speeds.end(), static_cast<size_t>(p.cpus), p.speed);
        for (const auto& j : in.jobs)
            if (j.value >= Money::units(reserve)) values.push_back(j.value.micro);
        std::sort(speeds.rbegin(), speeds.rend());
        std::sort(values.rbegin(), values.rend());
        const Solver s = solved(in);
        for (const Payment& p : s.payments()) {
            const JobSpec j = *s.job(p.job);
            size_t rank = 0;  // of the job: how many rank above it
            for (size_t o = 0; o < in.jobs.size(); ++o)
                rank += Rank::of(in.jobs[o].value, in.jobs[o].arrival, JobKey{o + 1}) <
                        Rank::of(j.value, j.arrival, p.job);
            int64_t sum = 0;
            for (size_t k = rank; k < speeds.size(); ++k)
                sum += (speeds[k] - (k + 1 < speeds.size() ? speeds[k + 1] : 0)) *
                       (k + 1 < values.size() ? values[k + 1] : reserve * 1'000'000);
            ck_assert_int_eq(p.price.micro, std::max(sum / speeds[0], reserve * 1'000'000));
        }
    }
}
END_TEST

START_TEST(the_closed_form_equals_the_integral_with_any_reserves) {
    Rng rng(99);
    for (int round = 0; round < 400; ++round) {
        Allocator market;
        for (uint64_t i = 1; i <= 6; ++i) {
            ProviderSpec p;
            p.speed = static_cast<int32_t>(25 * rng.between(1, 4));
            p.reserve = Money::units(rng.between(0, 8));
            p.cpus = static_cast<int32_t>(rng.between(1, 3));
            p.memory_mb = 100;
            p.accepting = rng.chance(0.9);
            market.add_provider(ProviderKey{i}, p);
        }
        for (int64_t n = rng.between(1, 16); n > 0; --n) {
            JobSpec j;
            j.value = Money::units(rng.between(0, 12));
            market.add_job(JobKey{static_cast<uint64_t>(n)}, j);
        }
        market.solve(Nanos{0});
        const auto closed = critical_prices(market), integral = critical_prices_by_integral(market);
        for (size_t j = 0; j < market.jobs().size(); ++j) {
            const auto& job = market.jobs()[j];
            if (job.slot == Allocator::none) continue;
            ck_assert_int_eq(closed[j].micro, integral[j].micro);
            ck_assert(closed[j] <= job.value &&
                      closed[j] >= market.machines()[job.slot].spec.reserve);
        }
    }
}
END_TEST

// By the definition and nothing else: for each running job its bid falls from its value to 0, and
// at each bid and each reserve that it passes the greedy from nothing has gone on without it, by
// all bids that are not below.
std::vector<Money> naive_integral(Allocator& market) {
    struct Place {
        const Allocator::Machine* machine;
        int64_t cpus, memory_mb;
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
        auto next = order.begin();
        for (; next != order.end() && market.jobs()[*next].rank < payer.rank; ++next) put(*next);
        // who is not in the order holds its room: that is what it competes for in its turn
        for (Place& p : places)
            if (!payer.competing && p.machine == &own)
                p.cpus += payer.cpus, p.memory_mb += payer.memory_mb;
        std::vector<Money> levels = reserves;
        for (const uint32_t j : order) levels.push_back(market.jobs()[j].value);
        levels.push_back(payer.value);
        std::sort(levels.begin(), levels.end(), std::greater<>());
        __int128 sum = 0;
        int32_t within = std::min(own.spec.speed, market.speed_top());
        for (const Money level : levels) {
            if (level > payer.value) continue;
            for (; next != order.end() && market.jobs()[*next].value >= level; ++next)
                if (*next != q) put(*next);
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
                JobSpec j;
                j.value = Money::units(rng.between(0, 40));
                j.cpus = static_cast<int32_t>(rng.between(1, std::max(1, cpus / 2)));
                j.memory_mb = rng.chance(0.3) ? 0 : rng.between(0, 1500);
                j.arrival = Nanos::from_s(now);
                if (rng.chance(0.1))
                    j.barred = {ProviderKey{static_cast<uint64_t>(rng.between(1, machines))}};
                market.add_job(JobKey{key++}, j);
            }
            market.solve(Nanos::from_s(2 * now));
            for (uint32_t j = 0; j < market.jobs().size(); ++j) {
                const auto& job = market.jobs()[j];
                if (job.slot == Allocator::none || !rng.chance(0.1)) continue;
                JobSpec pinned;
                pinned.value = job.value, pinned.cpus = job.cpus, pinned.memory_mb = job.memory_mb;
                pinned.arrival = job.arrival(), pinned.state = job.state,
                pinned.place = market.place_of(j);
                pinned.pin = Pin::stay;
                market.change_job(j, pinned);
            }
        }
        market.solve(Nanos::from_s(6));
        const auto expected = naive_integral(market), got = critical_prices_by_integral(market);
        const auto all = critical_prices(market);
        for (size_t j = 0; j < market.jobs().size(); ++j) {
            if (market.jobs()[j].slot == Allocator::none) continue;
            std::vector<uint32_t> one{static_cast<uint32_t>(j)};
            std::vector<Money> alone(market.jobs().size());
            integral_prices_of(market, alone, one, 0);
            ck_assert(alone[j] == expected[j]);
            ck_assert_msg(got[j] == expected[j] && all[j] == expected[j],
                          "round %d job %d pays %s, by the definition %s", round,
                          static_cast<int>(j), format_money(got[j]).c_str(),
                          format_money(expected[j]).c_str());
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
            JobSpec j;
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
            JobSpec s;
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
        auto closed = closed_prices(market, done);
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

// Those who have later jobs of their own are left to the integral; the others pay what that says as
// well.
START_TEST(where_users_are_bidders_the_closed_form_prices_who_has_no_later_job) {
    Rng rng(654);
    size_t given = 0, left = 0;
    for (int round = 0; round < 500; ++round) {
        Allocator market;
        fill_with_units(market, rng, rng.between(1, 12));
        std::vector<bool> done(market.jobs().size());
        std::vector<Money> closed(done.size()), integral(done.size());
        integral_prices(market, integral, done, true);
        unit_prices(market, closed, done, true);
        for (size_t j = 0; j < done.size(); ++j) {
            if (market.jobs()[j].slot == Allocator::none) continue;
            ++(done[j] ? given : left);
            if (done[j]) ck_assert_int_eq(closed[j].micro, integral[j].micro);
        }
    }
    ck_assert_msg(given > 500 && left > 500, "%zu were given, %zu were not", given, left);
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
                JobSpec j;
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

Instance three_on_two() {
    Instance in;
    for (const int64_t v : {100, 60, 30}) {
        JobSpec j;
        j.value = Money::units(v);
        in.jobs.push_back(j);
    }
    for (const int32_t speed : {100, 50}) {
        ProviderSpec p;
        p.speed = speed;
        p.reserve = Money::units(10);
        in.providers.push_back(p);
    }
    return in;
}

START_TEST(three_jobs_on_two_machines_pay_and_gain_what_the_definitions_say) {
    const Instance in = three_on_two();
    const Solver critical = solved(in);
    ck_assert_int_eq(critical.price(JobKey{1})->micro, 45'000'000);  // half x 60 + half x 30
    ck_assert_int_eq(critical.price(JobKey{2})->micro, 15'000'000);  // half x 30
    ck_assert(!critical.price(JobKey{3}));
    const Surplus s = critical.surplus();  // worth 100 and 30
    ck_assert_int_eq(s.consumers.micro, 70'000'000);
    ck_assert_int_eq(s.providers.micro, 40'000'000);
    ck_assert_int_eq(s.welfare.micro, 110'000'000);
    ck_assert_int_eq(solved(in, "first").price(JobKey{1})->micro, 100'000'000);
    // its bid is 60, and the machine half as fast
    ck_assert_int_eq(solved(in, "first").price(JobKey{2})->micro, 30'000'000);
    // nobody pays more than it is worth
    ck_assert_int_eq(solved(in, "first").surplus().consumers.micro, 0);
    // between reserve 10 and bid 60
    ck_assert_int_eq(solved(in, "uniform").price(JobKey{1})->micro, 35'000'000);
    ck_assert_int_eq(solved(in, "uniform").price(JobKey{2})->micro, 35'000'000);
    Solver uniform = solved(in, "uniform");
    SolverOptions o = uniform.options();
    for (const int32_t k : {0, 250, 1000}) {
        o.k_permille = k;
        ck_assert(uniform.set_options(o).has_value());
        ck_assert_int_eq(uniform.price(JobKey{1})->micro, 10'000'000 + 50'000 * k);
    }
    o.k_permille = 1001;
    ck_assert(!uniform.set_options(o).has_value());
}
END_TEST

START_TEST(reserves_are_steps_of_the_price_as_bids_are) {
    // A bid below 10 gets the slow machine for nothing, so 10 counts for the difference of speed
    // alone.
    Instance in;
    in.jobs.resize(1);
    in.jobs[0].value = Money::units(40);
    in.providers.resize(2);
    in.providers[0].speed = 100;
    in.providers[0].reserve = Money::units(10);
    in.providers[1].speed = 50;
    for (ProviderSpec& p : in.providers) p.memory_mb = 10;
    Solver s = solved(in);
    // half x 10, and never below the reserve
    ck_assert_int_eq(s.price(JobKey{1})->micro, 10'000'000);
    in.jobs.push_back(in.jobs[0]);
    in.jobs[1].value = Money::units(30);
    // half x 30: then the slow one, for nothing
    ck_assert_int_eq(solved(in).price(JobKey{1})->micro, 15'000'000);
    in.jobs.push_back(in.jobs[1]);
    in.jobs[2].value = Money::units(20);
    ck_assert_int_eq(solved(in).price(JobKey{1})->micro, 25'000'000);  // half x 30 + half x 20
    // Four machines of one speed that ask 0 (2 CPUs), 0, 7 and 13 (2 CPUs): below 9 each of the
    // four loses to the bid of 9.
    Instance ordinary;
    for (const auto& [reserve, cpus] :
         {std::pair(0, 2), std::pair(0, 1), std::pair(7, 1), std::pair(13, 2)}) {
        ProviderSpec p;
        p.reserve = Money::units(reserve);
        p.cpus = cpus;
        p.memory_mb = 10;
        ordinary.providers.push_back(p);
    }
    for (const int64_t v : {40, 37, 18, 17, 9, 7}) {
        JobSpec j;
        j.value = Money::units(v);
        ordinary.jobs.push_back(j);
    }
    s = solved(ordinary);
    for (uint64_t job = 1; job <= 4; ++job)
        ck_assert_int_eq(s.price(JobKey{job})->micro, 9'000'000);
    ck_assert(!s.price(JobKey{5}) && !s.price(JobKey{6}));
}
END_TEST

START_TEST(one_job_alone_pays_the_reserve_and_two_the_losing_bid) {
    Instance in = three_on_two();
    in.providers.resize(1);
    in.jobs.resize(1);
    ck_assert_int_eq(solved(in).price(JobKey{1})->micro, 10'000'000);
    in = three_on_two();
    in.providers.resize(1);
    ck_assert_int_eq(solved(in).price(JobKey{1})->micro, 60'000'000);
}
END_TEST

START_TEST(prices_stay_between_reserve_and_bid_under_every_pricing) {
    Rng rng(31337);
    for (int round = 0; round < 200; ++round) {
        Instance in = random_instance(rng, {0, 3, 4, 5, 8, 3});
        for (auto& p : in.providers) p.reserve = Money::units(rng.between(0, 6));
        for (const std::string_view pricing : Solver::pricings()) {
            const Solver s = solved(in, std::string(pricing).c_str());
            std::vector<std::optional<Money>> alone;  // asked one by one, before all are reckoned
            for (size_t j = 0; j < in.jobs.size(); ++j) alone.push_back(s.price(JobKey{j + 1}));
            for (const Payment& p : s.payments()) ck_assert(alone[p.job.n - 1] == p.price);
            for (const Payment& p : s.payments())
                ck_assert(p.price >= s.provider(p.provider)->reserve &&
                          p.price <= s.job(p.job)->value);
            const Surplus sum = s.surplus();
            ck_assert(sum.welfare == sum.consumers + sum.providers);
            ck_assert(sum.providers >= Money{});
        }
    }
}
END_TEST

START_TEST(prices_that_are_reckoned_in_pieces_are_those_that_all_are_at_once) {
    Rng rng(77);
    for (int round = 0; round < 300; ++round) {
        Instance in = random_instance(rng, {0, 3, round % 2 ? 1 : 4, 5, 8, 6});
        for (auto& j : in.jobs)
            if (rng.chance(0.1)) j.pin = Pin::frozen;
        const Solver s = solved(in), whole = solved(in);
        std::map<JobKey, Money> prices;
        Solver::PriceStart start = s.start_prices();
        for (const Payment& p : start.payments) prices.emplace(p.job, p.price);
        while (!start.rest.empty()) {
            const size_t before = start.rest.size();
            uint64_t steps = 0;
            for (const Payment& p : s.more_prices(start.rest, 10, steps))
                ck_assert(prices.emplace(p.job, p.price).second);
            ck_assert_uint_lt(start.rest.size(), before);
        }
        const auto all = whole.payments();
        ck_assert_uint_eq(all.size(), prices.size());
        for (const Payment& p : all) {
            ck_assert(prices.at(p.job) == p.price);
            if (const auto at_once = solved(in).price_at_once(p.job))
                ck_assert(*at_once == p.price);
        }
    }
}
END_TEST

}  // namespace

UNIT_SUITE(pricing, prices_that_are_reckoned_in_pieces_are_those_that_all_are_at_once,
           under_critical_no_job_gains_by_misreporting_its_value,
           critical_is_the_integral_over_the_bids_at_which_the_speed_changes,
           ranked_jobs_pay_the_formula_in_which_the_reserve_is_a_bid_as_well,
           the_closed_form_equals_the_integral_with_any_reserves,
           the_integral_is_what_its_definition_gives_in_markets_of_every_kind,
           where_each_job_needs_one_cpu_every_price_has_a_closed_form,
           where_users_are_bidders_the_closed_form_prices_who_has_no_later_job,
           prices_that_were_kept_are_those_that_would_be_reckoned_anew,
           three_jobs_on_two_machines_pay_and_gain_what_the_definitions_say,
           reserves_are_steps_of_the_price_as_bids_are,
           one_job_alone_pays_the_reserve_and_two_the_losing_bid,
           prices_stay_between_reserve_and_bid_under_every_pricing);
