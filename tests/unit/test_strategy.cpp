// SPDX-License-Identifier: GPL-2.0-or-later
// Strategies of jobs: each bid is held against what it promises, reckoned here minute by minute.
#include <cmath>
#include <set>

#include "kernel/base/rng.hpp"
#include "market/core/strategy.hpp"
#include "tests/unit/market_world.hpp"

using namespace souk;
using namespace souk::market;

namespace {

constexpr Nanos s(int64_t v) { return Nanos::from_s(v); }
constexpr Nanos hours(int64_t v) { return Nanos::from_s(3'600 * v); }

// Some minutes with a few speeds each, or none; prices in whole units from 1 to `dearest`.
PriceRows some_rows(Rng& rng, int64_t dearest) {
    PriceRows rows;
    const int64_t n = rng.between(1, 60);
    for (int64_t minute = 100; minute < 100 + n; ++minute) {
        PriceRecord row;
        row.minute = minute;
        int64_t price = rng.between(1, dearest);
        for (int32_t speed = 200; speed >= 50; speed -= 50)
            if (rng.chance(0.6)) {
                row.speeds.push_back({speed, 1, Money::units(price)});
                price = std::max<int64_t>(1, price - rng.between(0, 3));
            }
        if (row.speeds.empty())
            row.closed = 1;
        else
            row.least = row.low = row.high = row.speeds.back().price;
        rows.emplace(minute, row);
    }
    return rows;
}

// Follows a job that never changes its bid, second by second, once from each minute at which it may
// begin. Returns in which part of these cases it ends in time, and what a unit of work costs.
struct Walk {
    double in_time = 0, cost_of_work = INFINITY;
};
Walk walk(const PriceRows& rows, Money bid, Nanos work, Nanos left) {
    std::vector<std::pair<int64_t, double>> minutes;
    double pay = 0, done_in_all = 0;
    for (const auto& [minute, row] : rows) {
        std::pair<int64_t, double> best{0, 0};
        for (const auto& one : row.speeds)
            if (one.price <= bid && one.speed > best.first)
                best = {one.speed, static_cast<double>(one.price.micro)};
        minutes.push_back(best);
        pay += best.second;
        done_in_all += static_cast<double>(best.first);
    }
    size_t good = 0;
    for (size_t start = 0; start < minutes.size(); ++start) {
        int64_t seconds = left.ns / 1'000'000'000, done = 0;
        for (size_t at = start; seconds > 0; at = (at + 1) % minutes.size(), seconds -= 60)
            done += minutes[at].first * std::min<int64_t>(60, seconds);
        good += done >= work.ns / 10'000'000;
    }
    return {static_cast<double>(good) / static_cast<double>(minutes.size()),
            done_in_all > 0 ? pay / done_in_all : INFINITY};
}

JobTerms terms_of(const char* strategy, int64_t most) {
    JobTerms t;
    t.max_price = Money::units(most);
    t.strategy = strategy;
    t.finish = hours(1);
    t.runtime = hours(1);
    return t;
}

}  // namespace

START_TEST(a_strategy_has_a_name_and_is_truthful_without_what_it_needs) {
    for (const Strategy one :
         {Strategy::truthful, Strategy::pace, Strategy::deadline, Strategy::patient})
        ck_assert(strategy_named(to_string(one)) == one);
    ck_assert(strategy_named("fixed") == Strategy::truthful && !strategy_named("greedy"));
    JobTerms t = terms_of("deadline", 10);
    ck_assert(strategy_of(t) == Strategy::deadline);
    t.runtime = {};
    ck_assert(strategy_of(t) == Strategy::truthful);
    t.strategy = "of another version";
    ck_assert(bid_of(t, {}, {}).price == Money::units(10));
    t.pace = true;
    ck_assert(strategy_of(t) == Strategy::truthful);  // no budget
    t.budget = Money::units(1);
    ck_assert(strategy_of(t) == Strategy::pace);
}
END_TEST

// Method: all bids in whole units, each walked second by second; no other one is as sure and
// cheaper.
START_TEST(a_deadline_is_met_at_the_least_expected_cost_or_the_most_is_bid) {
    Rng rng(5);
    int met = 0, missed = 0;
    for (int round = 0; round < 3'000; ++round) {
        const int64_t dearest = rng.between(1, 25), most = rng.between(1, 30);
        const PriceRows rows = some_rows(rng, dearest);
        const JobTerms t = terms_of("deadline", most);
        const Nanos work = s(rng.between(1, 9'000)), left = s(rng.between(1, 12'000));
        const auto bid = deadline_bid(t, work, left, rows, 0);
        ck_assert(bid && bid->price <= t.max_price && bid->price.micro > 0);
        double least = INFINITY;
        for (int64_t units = 1; units <= most; ++units) {
            const Walk w = walk(rows, Money::units(units), work, left);
            if (w.in_time >= deadline_chance) least = std::min(least, w.cost_of_work);
        }
        const Walk chosen = walk(rows, bid->price, work, left);
        ck_assert_double_eq_tol(*bid->in_time, chosen.in_time, 1e-9);
        if (std::isinf(least)) {
            ck_assert(bid->price == t.max_price && *bid->in_time < deadline_chance);
            ++missed;
        } else {
            ck_assert(chosen.in_time >= deadline_chance);
            ck_assert_double_eq_tol(chosen.cost_of_work, least, least * 1e-9);
            ++met;
        }
    }
    ck_assert_msg(met > 500 && missed > 500, "%d met, %d missed", met, missed);
    ck_assert(!deadline_bid(terms_of("deadline", 5), s(1), s(1), {}, 0));
}
END_TEST

START_TEST(of_many_prices_some_are_tried_and_the_bid_is_still_sure) {
    Rng rng(6);
    PriceRows rows;
    for (int64_t minute = 0; minute < 1'440; ++minute) {
        PriceRecord row;
        row.minute = minute;
        row.speeds.push_back({100, 1, Money{rng.between(1'000'000, 90'000'000)}});
        rows.emplace(minute, row);
    }
    for (int round = 0; round < 50; ++round) {
        const Nanos left = s(rng.between(3'600, 86'400)), work{left.ns / 100 * rng.between(1, 90)};
        const auto bid = deadline_bid(terms_of("deadline", 100), work, left, rows, 0);
        ck_assert(bid && walk(rows, bid->price, work, left).in_time >= deadline_chance);
    }
}
END_TEST

START_TEST(the_usual_price_is_what_half_of_all_minutes_do_not_pass) {
    Rng rng(7);
    for (int round = 0; round < 2'000; ++round) {
        PriceRows rows = some_rows(rng, 9);
        std::vector<int64_t> all;  // a minute each; without a place: dearer than all
        for (auto& [minute, row] : rows) {
            row.minutes = static_cast<int32_t>(rng.between(1, 60));
            row.closed = row.speeds.empty() ? row.minutes
                                            : static_cast<int32_t>(rng.between(0, row.minutes - 1));
            for (int32_t i = 0; i < row.minutes; ++i)
                all.push_back(i < row.closed ? INT64_MAX : row.least.micro);
        }
        std::sort(all.begin(), all.end());
        const int64_t median = all[(all.size() + 1) / 2 - 1];
        const auto usual = usual_price(rows, 0);
        ck_assert_int_eq(usual ? usual->micro : INT64_MAX, median);
    }
    ck_assert(!usual_price({}, 0));
    JobTerms t = terms_of("patient", 10);
    Standing job;
    ck_assert(bid_of(t, job, {}).price == Money::units(10));  // no history: nothing is usual
    job.usual = Money::units(4);
    ck_assert(bid_of(t, job, {}).price == Money::units(4));
    job.usual = Money::units(40);
    ck_assert(bid_of(t, job, {}).price == Money::units(10));
}
END_TEST

// Worth 50 per CPU-hour, of two hours, done within that time.
JobTerms& submit_with_deadline(World& w, JobId& id, Nanos finish) {
    id = w.submit("n1", 50);
    JobTerms& t = w.jobs[id].report.terms;
    t.strategy = "deadline";
    t.finish = finish;
    t.runtime = hours(2);
    w.tell(w.jobs[id]);
    return t;
}

START_TEST(a_job_with_a_deadline_bids_what_is_enough_and_more_when_time_runs_out) {
    World w;
    w.add_node("n1", 100, 2);  // a reserve of 2
    w.run_for(hours(2));       // alone: 2 is enough at any minute
    JobId a;
    submit_with_deadline(w, a, hours(3));
    w.run_for(s(70));
    ck_assert_text(w.where(a), "n1");
    ck_assert_text(format_money(w.market->find(a)->bid), "2");
    ck_assert(w.market->find(a)->in_time == 1.0);
    // A rival takes the place. The usual price is not enough any more, and the job's bid follows.
    const JobId rival = w.submit_as(1001, "n1", 20);
    w.run_for(hours(1));
    ck_assert(w.market->find(a)->bid > Money::units(20));
    ck_assert_text(w.where(a), "n1");
    ck_assert_text(w.where(rival), "frozen");
    // An hour of its work is done at least, as far as it is charged.
    w.market->find(a);
    const auto why = w.market->reasons(*w.market->find(a), w.now);
    ck_assert(std::any_of(why.begin(), why.end(),
                          [](const Reason& r) { return r.code == ReasonCode::runs; }));
}
END_TEST

START_TEST(who_cannot_be_in_time_is_told_so_while_it_waits_and_while_it_runs) {
    World w;
    w.add_node("n1", 100, 2);
    w.run_for(hours(1));
    JobId a;
    JobTerms& t = submit_with_deadline(w, a, hours(1));
    w.run_for(s(5));
    const Job& job = *w.market->find(a);
    ck_assert(job.bid == Money::units(50) && job.in_time == 0.0);
    ck_assert_text(
        w.market->comment(job),
        "by the prices of the last day its chance to be done by its time is 0 %; it runs "
        "on n1");
    ck_assert_text(w.jobs[a].note.code, "deadline_unsure");
    t.finish = hours(3);
    w.tell(w.jobs[a]);
    w.run_for(s(5));
    ck_assert(w.jobs[a].note.code != "deadline_unsure" && job.bid == Money::units(2));
}
END_TEST

START_TEST(work_done_counts_by_the_speed_of_the_place) {
    World w;
    w.add_node("n1", 200, 1);
    w.run_for(s(4));
    const JobId a = w.submit("n1", 50);
    w.run_for(hours(1));
    w.jobs[a].report.terms.max_price = Money::units(49);  // what is open is charged
    w.tell(w.jobs[a]);
    w.run_for(hours(1));
    const double done = w.market->find(a)->record.done.seconds();
    const double run = w.market->find(a)->record.billed.seconds();
    ck_assert_double_eq_tol(done, 2 * run, 1);
    ck_assert_double_gt(run, 3'000);
}
END_TEST

UNIT_SUITE(strategy, a_strategy_has_a_name_and_is_truthful_without_what_it_needs,
           a_deadline_is_met_at_the_least_expected_cost_or_the_most_is_bid,
           of_many_prices_some_are_tried_and_the_bid_is_still_sure,
           the_usual_price_is_what_half_of_all_minutes_do_not_pass,
           a_job_with_a_deadline_bids_what_is_enough_and_more_when_time_runs_out,
           who_cannot_be_in_time_is_told_so_while_it_waits_and_while_it_runs,
           work_done_counts_by_the_speed_of_the_place);
