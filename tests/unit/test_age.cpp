// SPDX-License-Identifier: GPL-2.0-or-later
// Ageing (age.hpp): what a wait makes of a bid, and how often a job is passed over.
#include "market/core/age.hpp"

#include <cmath>

#include "kernel/base/rng.hpp"
#include "tests/unit/market_world.hpp"

using namespace souk;
using namespace souk::market;

namespace {
constexpr Nanos hours(int64_t n) { return Nanos::from_s(n * 3'600); }

MarketOptions with_ageing(Nanos ageing) {
    MarketOptions options;
    options.solver.ageing = ageing;
    return options;
}

// The value that a bid counts as, computed as the words of age.hpp say.
double counts(int64_t bid, Nanos waited, Nanos ageing) {
    return static_cast<double>(bid) * std::exp2(waited.seconds() / ageing.seconds());
}
}  // namespace

START_TEST(a_bid_counts_double_for_each_time_in_steps_of_an_eighth) {
    Rng rng(3);
    for (const Nanos ageing : {Nanos{1}, Nanos{7}, Nanos::from_s(60), hours(24), hours(27'777)})
        for (int round = 0; round < 300; ++round) {
            const Nanos waited{static_cast<int64_t>(
                static_cast<double>(ageing.ns) * static_cast<double>(rng.below(15'000)) / 1'000)};
            const double doubled = static_cast<double>(waited.ns) / static_cast<double>(ageing.ns);
            const double exact = 1'024 * std::exp2(std::floor(std::min(doubled, 12.0) * 8) / 8);
            const int32_t weight = weight_after(waited, ageing);
            ck_assert(weight == weight_plain || weight == weight_most ||
                      std::abs(weight - exact) <= exact / 1'000);
            const Nanos next = next_weight_at(waited, ageing);
            if (next == Nanos::never()) {
                ck_assert_int_eq(weight, weight_most);
                continue;
            }
            ck_assert(next > waited && weight_after(next, ageing) > weight);
            ck_assert_int_eq(weight_after(Nanos{next.ns - 1}, ageing), weight);
        }
    ck_assert_int_eq(weight_after(hours(1'000'000), Nanos{}), weight_plain);
    ck_assert(next_weight_at(hours(1), Nanos{}) == Nanos::never());
}
END_TEST

// One machine gets a job of an hour each half hour, and each of these bids more than the poor job.
// With ageing the poor job has its turn when the bound says, without ageing it never has.
START_TEST(a_poor_job_among_richer_ones_has_its_turn_when_it_counts_as_much) {
    for (const bool ages : {true, false}) {
        const Nanos ageing = ages ? hours(2) : Nanos{};
        World w(with_ageing(ageing));
        w.add_node("n1", 100, 1);
        const JobId poor = w.submit("n1", 2, hours(1));
        w.submit("n1", 8, hours(1));
        Nanos began = Nanos::never();
        for (int half = 0; half < 20 && began == Nanos::never(); ++half) {
            w.submit("n1", 8, hours(1));
            w.run_for(hours(1));
            if (w.where(poor) == "n1" || w.where(poor) == "finished") began = w.now;
        }
        if (!ages) {
            ck_assert(began == Nanos::never());
            continue;
        }
        // the wait is log2(8 / 2) times two hours, and the run time of jobs that counted as much
        // before
        ck_assert_msg(began >= hours(4) && began <= hours(7), "%f", began.seconds() / 3'600);
        ck_assert(Market::waited(*w.market->find(poor), w.now) >= hours(3));
    }
}
END_TEST

// Random queues for one machine. Whenever a job gets a place that came after another one that
// waits and needs no more, its bid counts for more, within a step: by clocks that the test keeps.
START_TEST(nobody_is_passed_by_a_later_bid_that_counts_for_less) {
    uint64_t passed = 0;
    for (uint64_t seed = 1; seed <= 12; ++seed) {
        Rng rng(seed * 977);
        const Nanos ageing = hours(static_cast<int64_t>(rng.between(1, 4)));
        World w(with_ageing(ageing));
        w.add_node("n1", 100, 1, 2);
        std::map<JobId, Nanos> waited;
        Nanos before = w.now;
        std::map<JobId, std::string> were;
        w.after_step = [&] {
            for (const auto& [id, where] : were)
                if (where.empty() || where == "frozen" || where == "waiting")
                    waited[id] += w.now - before;
            before = w.now;
            std::vector<JobId> waiting;
            for (const auto& [id, job] : w.jobs) {
                const std::string where = w.where(id);
                if (where == "waiting" || where == "frozen") waiting.push_back(id);
                were[id] = where;
            }
            for (const auto& [id, job] : w.jobs) {
                if (job.report.phase != JobPhase::running) continue;
                const auto bid = [&](const JobId& j) {
                    return w.jobs.at(j).report.terms.max_price.micro;
                };
                for (const JobId& other : waiting) {
                    if (w.jobs.at(other).report.submitted >= job.report.submitted) continue;
                    ++passed;
                    // a step of the one, a step of the other, and half a minute between decisions
                    ck_assert_msg(counts(bid(id), waited[id], ageing) * 1.2 >
                                      counts(bid(other), waited[other], ageing),
                                  "seed %d: %s passes %s", static_cast<int>(seed),
                                  id.text().c_str(), other.text().c_str());
                }
            }
        };
        for (int step = 0; step < 60; ++step) {
            // Each of a user of its own: equal jobs of one user exchange their turns.
            if (rng.chance(0.5))
                w.submit("n1", rng.between(1, 12), hours(static_cast<int64_t>(rng.between(1, 3))),
                         1, 100, {}, 1'000 + static_cast<uint32_t>(step));
            w.run_for(Nanos::from_s(static_cast<int64_t>(rng.between(600, 3'600))));
        }
    }
    ck_assert_uint_gt(passed, 1'000);
}
END_TEST

// The job has waited for three quarters of `ageing` when the market dies. The wait goes on
// afterwards.
START_TEST(a_wait_outlives_the_market_and_what_is_held_does_not_wait) {
    World w(with_ageing(hours(8)));
    w.calendar = hours(400'000);
    w.market->set_calendar(w.calendar);
    w.add_node("n1", 100, 1);
    w.submit("n1", 9);
    const JobId low = w.submit("n1", 2);
    w.run_for(hours(6));
    ck_assert(Market::waited(*w.market->find(low), w.now) == hours(6) ||
              Market::waited(*w.market->find(low), w.now) >= hours(6) - Nanos::from_s(5));
    w.now += hours(1);
    w.restart();
    w.connect("n1");
    w.run_for(hours(1));
    const double after = Market::waited(*w.market->find(low), w.now).seconds() / 3'600;
    ck_assert_msg(after > 7.9 && after < 8.1, "%f", after);
    ck_assert_int_eq(w.market->find(low)->weight, 2 * weight_plain);
    ck_assert(w.market->freeze(low, true, root_uid).has_value());
    w.run_for(hours(5));
    const double held = Market::waited(*w.market->find(low), w.now).seconds() / 3'600;
    ck_assert_msg(held > 7.9 && held < 8.1, "%f", held);
}
END_TEST

START_TEST(a_gang_ages_as_one) {
    World w(with_ageing(hours(1)));
    w.add_node("n1", 100, 1, 2);
    w.submit("n1", 8);
    const auto gang = w.submit_gang("n1", 3, 2, 1, hours(1));
    w.run_for(hours(1));
    ck_assert_text(w.where(gang[0]), "waiting");
    w.run_for(Nanos::from_s(1'830));
    for (const JobId& id : gang) ck_assert_text(w.where(id), "n1");
    ck_assert_text(w.comment({"n1", 1}),
                   "displaced by job n1.3 at 3, which counts as 8.484375 after its wait; "
                   "8.484375 would win it back");
    w.run_for(hours(5));  // in turns of an eighth of an hour
    for (const JobId& id : gang) ck_assert_text(w.where(id), "finished");
}
END_TEST

UNIT_SUITE_LONG(age, 120, a_bid_counts_double_for_each_time_in_steps_of_an_eighth,
                a_poor_job_among_richer_ones_has_its_turn_when_it_counts_as_much,
                nobody_is_passed_by_a_later_bid_that_counts_for_less,
                a_wait_outlives_the_market_and_what_is_held_does_not_wait, a_gang_ages_as_one);
