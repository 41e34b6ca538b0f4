// SPDX-License-Identifier: GPL-2.0-or-later
// The history of prices has rows a minute, an hour, or none. These tests check the rows, what the
// Market writes down of them, and what a job would have met.
#include "kernel/base/rng.hpp"
#include "market/core/quote.hpp"
#include "tests/unit/market_world.hpp"

using namespace souk;
using namespace souk::market;

namespace {

constexpr Nanos s(int64_t v) { return Nanos::from_s(v); }

PriceRecord row(int64_t minute, int64_t price) {
    return record_of(minute, {{100, Money::units(price)}});
}
PriceRecord closed_row(int64_t minute) { return record_of(minute, {{100, {}}}); }

}  // namespace

START_TEST(a_row_is_the_least_of_all_and_the_least_of_each_speed) {
    const PriceRecord r = record_of(
        7, {{100, Money::units(9)}, {200, Money::units(30)}, {100, Money::units(8)}, {50, {}}});
    ck_assert_int_eq(r.minute, 7);
    ck_assert_int_eq(r.closed, 0);
    ck_assert(r.least == Money::units(8) && r.low == r.least && r.high == r.least);
    ck_assert(r.speeds == (std::vector<PriceRecord::Speed>{{200, 1, Money::units(30)},
                                                           {100, 1, Money::units(8)}}));
    ck_assert_int_eq(closed_row(7).closed, 1);
    std::vector<Offer> many;
    for (int32_t speed = 1; speed <= 1'000; ++speed) many.push_back({speed, Money::units(speed)});
    const PriceRecord few = record_of(7, many);
    ck_assert_uint_le(few.speeds.size(), PriceHistory::speeds_max);
    ck_assert(few.least == Money::units(1) && few.speeds.back().speed == 1);
}
END_TEST

START_TEST(several_rows_are_one_by_their_minutes) {
    const std::vector<PriceRecord> rows = {row(60, 10), row(61, 20), closed_row(62), row(63, 30)};
    const PriceRecord all = merged(rows);
    ck_assert_int_eq(all.minute, 60);
    ck_assert_int_eq(all.minutes, 4);
    ck_assert_int_eq(all.closed, 1);
    ck_assert(all.least == Money::units(20) && all.low == Money::units(10) &&
              all.high == Money::units(30));
    ck_assert(all.speeds == (std::vector<PriceRecord::Speed>{{100, 3, Money::units(20)}}));
    const std::vector<PriceRecord> shut = {closed_row(60), row(61, 5)};
    ck_assert(merged(shut).low == Money::units(5));
}
END_TEST

// The method: 40 days of rows. The rows that are to be stored and erased are replayed, and the
// result must be the rows in memory.
START_TEST(the_history_is_bounded_and_old_rows_are_one_an_hour) {
    PriceHistory history;
    std::map<int64_t, PriceRecord> stored;
    Rng rng(5);
    int64_t minute = 1'000'000;
    for (int i = 0; i < 40 * 1'440; ++i) {
        minute += rng.chance(0.001) ? rng.between(2, 3'000) : 1;  // a market that was away
        const auto changes =
            history.add(rng.chance(0.1) ? closed_row(minute) : row(minute, rng.between(1, 50)));
        for (const int64_t gone : changes.erase) ck_assert_uint_eq(stored.erase(gone), 1);
        for (const PriceRecord& r : changes.put) stored[r.minute] = r;
        ck_assert_uint_le(history.rows().size(), 3'700);
    }
    ck_assert(stored == history.rows());
    ck_assert_int_eq(history.newest(), minute);
    for (const auto& [at, r] : history.rows()) {
        ck_assert(at > minute - PriceHistory::kept_minutes - 60);
        if (at > minute - PriceHistory::fine_minutes) ck_assert_int_eq(r.minutes, 1);
        ck_assert_int_le(r.minutes, 60);
    }
    for (auto it = history.rows().begin();
         std::next(it)->first <= minute - PriceHistory::fine_minutes - 60; ++it)
        ck_assert_int_lt(it->first / 60, std::next(it)->first / 60);
    size_t rows = 0;
    for (const PriceRecord& r : history.list(0, 1'440)) {
        ck_assert_int_le(r.minutes, 1'440);
        rows += static_cast<size_t>(r.minutes);
    }
    size_t all = 0;
    for (const auto& [at, r] : history.rows()) all += static_cast<size_t>(r.minutes);
    ck_assert_uint_eq(rows, all);
    ck_assert_uint_eq(history.list(minute - 9, 1).size(),
                      history.list(minute - 9, 1).back().minute == minute
                          ? history.list(minute - 9, 1).size()
                          : 0);
    // A clock that is set back takes the rows of the time that did not come.
    const auto back = history.add(row(minute - 100, 1));
    ck_assert_int_eq(history.newest(), minute - 100);
    ck_assert(!back.erase.empty());
}
END_TEST

START_TEST(the_market_writes_down_each_minute_what_a_place_needs) {
    World w;
    w.calendar = s(3'600);
    w.market->set_calendar(w.calendar);
    w.add_node("n1", 200, 20);
    w.add_node("n2", 100, 10);
    w.run_until(s(90));
    w.submit("n1", 50);
    w.run_until(s(150));
    ProviderReport p = w.providers["n1"];
    p.on_market = false;
    w.set_provider(p);
    p = w.providers["n2"];
    p.on_market = false;
    w.set_provider(p);
    w.run_until(s(200));
    const auto& rows = w.stored_prices;
    ck_assert(rows == w.market->price_history().rows());
    const auto speeds = [&](int64_t minute) { return rows.at(60 + minute).speeds; };
    ck_assert(speeds(1) == (std::vector<PriceRecord::Speed>{{200, 1, Money::units(20)},
                                                            {100, 1, Money::units(10)}}));
    ck_assert(speeds(2) == (std::vector<PriceRecord::Speed>{{200, 1, Money::units(51)},
                                                            {100, 1, Money::units(10)}}));
    ck_assert_int_eq(rows.at(63).closed, 1);
    w.restart();
    ck_assert(w.market->price_history().rows() == rows);
    w.connect("n1");
    w.connect("n2");
    w.run_until(s(320));
    ck_assert_uint_eq(rows.size(), 6);
}
END_TEST

START_TEST(an_outlook_is_what_a_job_would_have_met) {
    std::map<int64_t, PriceRecord> rows;
    for (int64_t m = 0; m < 10; ++m) rows[m] = m == 9 ? closed_row(m) : row(m, m < 5 ? 6 : 12);
    // At 12 the job has a place in nine minutes of ten. A minute's work is never cut off, not even
    // if it begins in minute 8.
    Outlook o = outlook(rows, 0, Money::units(12), 1, s(60), {}, false);
    ck_assert_int_eq(o.minutes, 10);
    ck_assert(o.place_share > 0.899 && o.place_share < 0.901);
    ck_assert(*o.frozen == 0);
    ck_assert_int_eq(o.span->ns, s(60).ns);
    ck_assert_int_eq(o.cost->micro, (5 * 100'000 + 4 * 200'000) / 9);
    // from minute 8 on it is frozen for a minute
    o = outlook(rows, 0, Money::units(12), 2, s(120), s(150), false);
    ck_assert(*o.frozen > 0.111 && *o.frozen < 0.112);
    ck_assert_int_eq(o.span->ns, s(120).ns + s(60).ns / 9);
    ck_assert(*o.in_time > 0.888 && *o.in_time < 0.889);
    o = outlook(rows, 0, Money::units(6), 1, s(600), {},
                false);  // half of the time: frozen for five minutes each round
    ck_assert(*o.frozen == 1 && o.place_share == 0.5);
    ck_assert_int_eq(o.cost->micro, 1'000'000);
    o = outlook(rows, 0, Money::units(5), 1, s(60), {}, true);
    ck_assert(!o.frozen && !o.cost && o.place_share == 0);
    // it waits now: as it did in minute 9
    o = outlook(rows, 0, Money::units(12), 1, s(60), {}, true);
    ck_assert_int_eq(o.span->ns, s(120).ns);
    ck_assert(*o.frozen == 0);
    ck_assert(outlook(rows, 10, Money::units(12), 1, s(60), {}, false).minutes == 0);
}
END_TEST

// Method: minute by minute, from every start, without the short cut over whole rounds.
START_TEST(an_outlook_is_that_of_a_walk_minute_by_minute) {
    Rng rng(9);
    for (int round = 0; round < 200; ++round) {
        std::map<int64_t, PriceRecord> rows;
        const int64_t n = rng.between(1, 40);
        for (int64_t m = 0; m < n; ++m) {
            std::vector<Offer> offers;
            for (const int32_t speed : {50, 100, 200})
                offers.push_back({speed, rng.chance(0.7)
                                             ? std::optional(Money::units(rng.between(1, 30)))
                                             : std::nullopt});
            rows[m] = record_of(m, offers);
        }
        const Money bid = Money::units(rng.between(1, 30));
        const Nanos work = s(rng.between(1, 20'000));
        const auto o = outlook(rows, 0, bid, 1, work, {}, false);
        int64_t starts = 0, frozen = 0;
        double cost = 0, span = 0;
        const auto best = [&](int64_t m) -> std::pair<int32_t, double> {
            for (const auto& sp : rows.at(m).speeds)
                if (sp.price <= bid) return {sp.speed, static_cast<double>(sp.price.micro)};
            return {0, 0};
        };
        for (int64_t start = 0; start < n; ++start) {
            if (best(start).first == 0) continue;
            ++starts;
            double left = work.seconds() * 100;
            bool stopped = false, cut = false;
            for (int64_t at = start; left > 0.5; at = (at + 1) % n) {
                const auto [speed, price] = best(at);
                stopped = stopped || speed == 0;
                cut = cut || (stopped && speed > 0);
                const double took = speed == 0 ? 60 : std::min(60.0, left / speed);
                left -= speed * took;
                span += took;
                cost += price * took / 3'600 * (speed > 0);
            }
            frozen += cut;
        }
        ck_assert_int_eq(o.frozen.has_value(), starts > 0);
        if (starts == 0) continue;
        const auto count = static_cast<double>(starts);
        ck_assert_msg(std::abs(*o.frozen - static_cast<double>(frozen) / count) < 1e-9, "round %d",
                      round);
        ck_assert_msg(std::abs(o.span->seconds() - span / count) < 0.01, "round %d: %f, %f", round,
                      o.span->seconds(), span / count);
        ck_assert(std::abs(static_cast<double>(o.cost->micro) - cost / count) < 100);
    }
}
END_TEST

UNIT_SUITE(price_history, a_row_is_the_least_of_all_and_the_least_of_each_speed,
           several_rows_are_one_by_their_minutes,
           the_history_is_bounded_and_old_rows_are_one_an_hour,
           the_market_writes_down_each_minute_what_a_place_needs,
           an_outlook_is_what_a_job_would_have_met, an_outlook_is_that_of_a_walk_minute_by_minute);
