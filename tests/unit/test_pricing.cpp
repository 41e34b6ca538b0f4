// SPDX-License-Identifier: GPL-2.0-or-later
// Prices against their definitions, by brute force on small markets.
#include <algorithm>
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
    std::vector<JobDemand> jobs;          // key is index + 1
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
    const JobDemand j = *s.job(JobKey{job + 1});
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
    bool waits = false;        // some jobs have waited: their bids count for more
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
        JobDemand j;
        j.value = Money::units(rng.between(1, 9));
        j.cpus = static_cast<int32_t>(rng.between(1, s.cpus_job));
        j.memory_mb = s.memory_job ? rng.between(0, s.memory_job) : 0;
        j.arrival = Nanos::from_s(rng.between(0, 3));
        j.user = static_cast<uint32_t>(in.jobs.size());
        if (s.waits && rng.chance(0.6)) j.weight = static_cast<int32_t>(rng.between(1024, 9000));
        in.jobs.push_back(j);
    }
    return in;
}

// In these markets the theorem holds: they have no reserves, or one speed.
constexpr Shape truthful_shapes[] = {
    {0, 1, 1, 0, 9, 4},    {3, 1, 2, 0, 9, 1},    {0, 1, 3, 0, 9, 3},
    {0, 3, 4, 0, 9, 3},    {0, 2, 4, 5, 8, 2},    {2, 3, 4, 5, 8, 1},
    {0, 1, 2, 0, 9, 1, 8}, {0, 3, 4, 0, 9, 1, 8}, {0, 2, 4, 5, 8, 1, 8},
};

// No bid other than its value gains a job anything, where the theorem holds.
void search_for_lies(bool waits) {
    for (Shape shape : truthful_shapes) {
        shape.waits = waits;
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
                    ck_assert_msg(gain <= top, "shape %d,%d,%d round %d job %d bids %d/2: +%ld",
                                  shape.cpus_job, shape.cpus_machine, shape.speeds, round,
                                  static_cast<int>(j), static_cast<int>(half),
                                  static_cast<long>(gain));
                }
                in.jobs[j].value = truth;
            }
        }
    }
}

START_TEST(under_critical_no_job_gains_by_misreporting_its_value) { search_for_lies(false); }
END_TEST

START_TEST(who_has_waited_gains_nothing_by_misreporting_its_value) { search_for_lies(true); }
END_TEST

// A job that has waited has a bid that counts more. It pays the least bid that would have won with
// that weight: less than the job that it displaces would, and never less than the reserve of its
// place.
START_TEST(who_has_waited_pays_what_its_bid_had_to_count_as_and_the_reserve) {
    Instance in;
    in.providers.resize(1);
    in.providers[0].memory_mb = 1;
    in.jobs.resize(2);
    in.jobs[0].value = Money::units(3), in.jobs[0].weight = 4 * weight_plain;
    in.jobs[1].value = Money::units(10), in.jobs[1].user = 1;
    ck_assert(outcome(in, 0).speed > 0 && outcome(in, 0).price == Money{2'500'000});
    ck_assert(*solved(in).winning_bid(JobKey{2}) == Money::units(13));
    in.providers[0].reserve = Money::units(2);
    ck_assert(outcome(in, 0).price == Money{2'500'000});
    in.jobs[1].value = Money::units(6);
    ck_assert(outcome(in, 0).price == Money::units(2));
    in.providers[0].reserve = Money::units(4);  // above its bid, however long it has waited
    ck_assert(outcome(in, 0).speed == 0 && outcome(in, 1).price == Money::units(4));
    ck_assert(*solved(in).winning_bid(JobKey{1}) == Money::units(4));
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
            const JobDemand j = *s.job(p.job);
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
            JobDemand j;
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

Instance three_on_two() {
    Instance in;
    for (const int64_t v : {100, 60, 30}) {
        JobDemand j;
        j.value = Money::units(v);
        j.user = static_cast<uint32_t>(in.jobs.size());
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
    // the price is halfway between the reserve of 10 and the bid of 60
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
    // half of 10 is below the reserve, so the price is the reserve
    ck_assert_int_eq(s.price(JobKey{1})->micro, 10'000'000);
    in.jobs.push_back(in.jobs[0]);
    in.jobs[1].value = Money::units(30);
    in.jobs[1].user = 1;
    // the price is half of 30; for less, the job would get the slow machine for nothing
    ck_assert_int_eq(solved(in).price(JobKey{1})->micro, 15'000'000);
    in.jobs.push_back(in.jobs[1]);
    in.jobs[2].value = Money::units(20);
    in.jobs[2].user = 2;
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
        JobDemand j;
        j.value = Money::units(v);
        j.user = static_cast<uint32_t>(ordinary.jobs.size());
        ordinary.jobs.push_back(j);
    }
    s = solved(ordinary);
    for (uint64_t job = 1; job <= 4; ++job)
        ck_assert_int_eq(s.price(JobKey{job})->micro, 9'000'000);
    ck_assert(!s.price(JobKey{5}) && !s.price(JobKey{6}));
}
END_TEST

START_TEST(a_user_alone_in_the_market_pays_reserves_however_many_jobs_it_has) {
    for (const int32_t wide : {1, 2}) {  // ranks say all, and not
        Instance in;
        for (int64_t n = 1; n <= 6; ++n) {
            JobDemand j;
            j.value = Money::units(10 * n);
            j.cpus = n == 1 ? wide : 1;
            j.user = 7;
            in.jobs.push_back(j);
            // the last one is chosen last
            in.providers.push_back({Money::units(1), 100, n == 6 ? wide : 1, 1, true});
        }
        Solver s = solved(in);
        for (uint64_t n = 1; n <= 6; ++n) ck_assert(*s.price(JobKey{n}) == Money::units(1));
        if (wide > 1) continue;
        // Another user's bids are lost to the six: each is paid for once, the highest by the job
        // that ranks last.
        for (const int64_t bid : {9, 8, 7}) {
            in.jobs[0].value = Money::units(bid);
            in.jobs[0].user = 8;
            ck_assert(s.add_job(JobKey{static_cast<uint64_t>(100 - bid)}, in.jobs[0]));
        }
        s.solve(Nanos{0});
        std::vector<int64_t> paid;
        for (uint64_t n = 1; n <= 6; ++n) paid.push_back(s.price(JobKey{n})->micro / 1'000'000);
        ck_assert((paid == std::vector<int64_t>{9, 8, 7, 1, 1, 1}));
    }
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

UNIT_SUITE_LONG(pricing, 180, prices_that_are_reckoned_in_pieces_are_those_that_all_are_at_once,
                under_critical_no_job_gains_by_misreporting_its_value,
                who_has_waited_gains_nothing_by_misreporting_its_value,
                who_has_waited_pays_what_its_bid_had_to_count_as_and_the_reserve,
                critical_is_the_integral_over_the_bids_at_which_the_speed_changes,
                ranked_jobs_pay_the_formula_in_which_the_reserve_is_a_bid_as_well,
                the_closed_form_equals_the_integral_with_any_reserves,
                three_jobs_on_two_machines_pay_and_gain_what_the_definitions_say,
                reserves_are_steps_of_the_price_as_bids_are,
                a_user_alone_in_the_market_pays_reserves_however_many_jobs_it_has,
                one_job_alone_pays_the_reserve_and_two_the_losing_bid,
                prices_stay_between_reserve_and_bid_under_every_pricing);
