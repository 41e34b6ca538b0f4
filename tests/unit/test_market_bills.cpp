// SPDX-License-Identifier: GPL-2.0-or-later
// The market bills jobs correctly although the market, a home, a node or the clock was away.
#include "kernel/base/rng.hpp"
#include "market/core/bill.hpp"
#include "tests/unit/market_world.hpp"

using namespace souk;
using namespace souk::market;

namespace {
constexpr Nanos s(int64_t v) { return Nanos::from_s(v); }
}  // namespace

START_TEST(what_ran_while_the_market_was_away_is_billed_at_the_last_price) {
    World w;
    w.add_node("n1", 100, 36);
    w.run_for(s(4));
    const JobId a = w.submit("n1", 100, s(1'000));
    w.run_for(s(100));
    w.disconnect("n1");
    w.market->agent_lost("n1", w.now);
    w.decide();
    const Nanos gone = w.now;
    for (auto& [id, job] : w.jobs)
        if (job.run_since != Nanos::never()) w.now = job.run_since + s(1'000);
    w.end(w.jobs[a]);  // it ended while nobody listened
    ck_assert(w.now - gone > s(800));
    w.restart();
    w.connect("n1");
    w.run_for(s(1));
    ck_assert(w.jobs[a].settled);
    ck_assert_text(format_money(w.jobs[a].note.cost), "10");
}
END_TEST

START_TEST(the_last_price_holds_while_a_node_takes_nobody) {
    for (const bool away : {true, false}) {
        World w;
        w.add_node("n1", 100, 1);
        w.add_node("n2", 80, 1);
        w.run_for(s(4));
        const JobId b = w.submit("n1", 50), a = w.submit("n1", 40);
        w.run_for(s(5));
        ck_assert_text(w.where(a), "n2");
        ck_assert_text(w.where(b), "n1");
        const Money price = w.market->find(a)->record.price;
        ck_assert(price < Money::units(3));
        ProviderReport stopped = w.providers["n2"], lends = stopped;
        stopped.cannot = "its owner uses node n2";
        if (away)
            w.disconnect("n2");
        else
            w.set_provider(stopped);
        for (int i = 0; i < 50; ++i) {
            w.run_for(s(1));
            if (w.where(a) != "n2") break;
            ck_assert(w.market->find(a)->record.price == price);
        }
        ck_assert_text(w.where(a), "n2");
        if (away)
            w.connect("n2");
        else
            w.set_provider(lends);
        w.run_for(s(5));
        ck_assert(w.market->find(a)->record.price == price);
        // and whoever wants its place is heard again
        w.submit_as(2000, "n1", 20);
        w.run_for(s(5));
        ck_assert(w.market->find(a)->record.price > price);
    }
}
END_TEST

START_TEST(a_guest_of_a_node_that_is_away_pays_no_less_because_others_would_have_its_place) {
    World w;
    w.calendar = s(1'000);
    w.market->set_calendar(w.calendar);
    w.add_node("n1", 100, 1);
    w.add_node("n2", 50, 1);
    w.run_for(s(4));
    const JobId a = w.submit_as(1'000, "n2", 20), b = w.submit_as(2'000, "n2", 18);
    w.run_for(s(5));
    ck_assert_text(w.where(a), "n1");
    const Money price = w.market->find(a)->record.price;
    ck_assert(price > Money::units(9));
    w.disconnect("n1");
    w.jobs[b].report.terms.max_price = Money::units(50);
    w.tell(w.jobs[b]);
    w.run_for(s(300));
    ck_assert_text(w.where(a), "n1");
    ck_assert(w.market->find(a)->record.price == price);
    // When nobody bids for it any more, it falls.
    w.end(w.jobs[b]);
    w.run_for(s(100));
    ck_assert(w.market->find(a)->record.price == Money::units(1));
}
END_TEST

START_TEST(a_home_that_is_away_pays_what_others_would) {
    World w;
    w.add_node("n1", 100, 1);
    w.add_node("n2", 80, 1);
    w.add_node("n3", 80, 1, 1, 10);  // takes no job
    w.run_for(s(4));
    w.submit("n1", 50);
    const JobId a = w.submit("n3", 40);
    w.run_for(s(5));
    ck_assert_text(w.where(a), "n2");
    const Money price = w.market->find(a)->record.price;
    w.disconnect("n3");
    w.submit_as(2000, "n1", 20);
    w.run_for(s(5));
    ck_assert_text(w.where(a), "n2");
    ck_assert(w.market->find(a)->record.price > price);
    ck_assert(w.market->find(a)->record.price <= Money::units(40));
}
END_TEST

START_TEST(a_job_that_began_while_the_market_was_away_is_billed_for_all_of_it) {
    World w;
    w.add_node("n1", 100, 36);
    w.run_for(s(4));
    const JobId a = w.submit("n1", 100);
    w.decide();  // the order leaves, and its answer finds nobody
    w.restart();
    w.now = w.jobs[a].done_at;
    w.done(w.jobs[a]);
    w.now += s(100);
    World::stop_clock(w.jobs[a], w.now);  // a report has the sum until now
    w.jobs[a].run_since = w.now;
    w.connect("n1");
    w.run_for(s(100));
    ck_assert_text(format_money(w.cost(a)), "2");
    // and what runs since
    ck_assert_text(format_money(w.market->find_node("n1")->record.earned), "1");
}
END_TEST

// The order of a move left, and its end finds nobody: 100 s at n1, 200 s at n2 until contact
// returns, 100 s more.
START_TEST(
    a_job_that_moved_while_the_market_was_away_is_billed_at_each_place_for_what_it_ran_there) {
    World w;
    w.add_node("n1", 100, 36);
    w.add_node("n2", 50, 18);
    w.run_for(s(4));
    const JobId a = w.submit("n1", 100);
    w.run_for(s(100));
    ck_assert_text(w.where(a), "n1");
    ck_assert(w.market->move(a, "n2", true, 0).has_value());
    w.decide();
    const Nanos at_n1 = w.run_time(w.jobs[a]);
    w.restart();
    w.now = w.jobs[a].done_at;
    w.done(w.jobs[a]);
    w.now += s(200);
    World::stop_clock(w.jobs[a], w.now);  // a report has the sum until now
    w.jobs[a].run_since = w.now;
    w.connect("n1");
    w.connect("n2");
    w.run_for(s(100));
    ck_assert_text(w.where(a), "n2");
    ck_assert(w.market->cancel(a, 0).has_value());
    w.run_for(s(1));
    std::map<NodeName, Nanos> ran;
    std::map<NodeName, Money> paid;
    for (const Receipt& r : w.receipts) {
        ran[r.node] += r.run;
        paid[r.node] += r.paid;
    }
    ck_assert(ran["n1"] == at_n1 && ran["n2"] == s(300));
    ck_assert(paid["n1"] == cost_of(Money::units(36), 1, at_n1));
    // 200 s at the last price that the market had said, 36, and 100 s at n2's
    ck_assert_text(format_money(paid["n2"]), "2.5");
}
END_TEST

// Method: the wall clock is set back and forth at random, by seconds to months, while jobs run,
// move and end.
START_TEST(a_wall_clock_that_is_set_charges_nothing_and_loses_nothing) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        Rng rng(seed);
        World w;
        w.calendar = Nanos::from_s(1'700'000'000);
        w.restart();
        w.add_node("n1", 100, 36);
        w.add_node("n2", 90, 36);
        w.run_for(s(4));
        std::vector<JobId> ids;
        for (int i = 0; i < 40; ++i) {
            const int64_t most = rng.chance(0.3) ? 10'000'000 : 1'000;
            w.calendar =
                std::max(Nanos::from_s(1'000'000'000), w.calendar + s(rng.between(-most, most)));
            w.market->set_calendar(w.calendar);
            if (rng.chance(0.5)) ids.push_back(w.submit("n1", 100, s(rng.between(1, 200))));
            if (rng.chance(0.2) && !ids.empty())
                (void)w.market->move(ids[rng.below(ids.size())], rng.chance(0.5) ? "n1" : "n2",
                                     false, 0);
            w.run_for(s(rng.between(1, 60)));
        }
        w.run_for(s(20'000));
        for (const JobId& id : ids) {
            ck_assert_text(w.where(id), "finished");
            Nanos ran;
            Money paid;
            for (const Receipt& r : w.receipts)
                if (r.job == id) {
                    ck_assert(r.to >= r.from);
                    ran += r.run;
                    paid += r.paid;
                }
            ck_assert(ran == w.jobs[id].report.stats.run_time);
            ck_assert_int_eq(paid.micro, w.jobs[id].note.cost.micro);
            // The bill is exact to the micro-unit at all prices: both nodes ask 36, and a contest
            // goes up to the bid of 100.
            ck_assert(paid >= cost_of(Money::units(36), 1, ran) &&
                      paid <= cost_of(Money::units(100), 1, ran));
        }
    }
}
END_TEST

START_TEST(a_home_that_restarts_and_forgets_a_stretch_makes_nobody_poorer) {
    World w;
    w.add_node("n1", 100, 36);
    w.run_for(s(4));
    const JobId a = w.submit("n1", 100, Nanos::never());
    w.run_for(s(500));
    w.disconnect("n1");
    w.jobs[a].run_since = w.now;  // the stretch until now is forgotten
    w.connect("n1");
    w.run_for(s(500));
    ProviderReport p = w.providers["n1"];
    p.on_market = false;
    w.set_provider(p);
    w.run_for(s(10));
    ck_assert_text(w.where(a), "frozen");
    const double units = static_cast<double>(w.cost(a).micro) / 1e6;
    ck_assert_msg(units > 9.99 && units < 10.01, "it cost %f", units);
}
END_TEST

// The cost of a job of n2's that has run on n1 for 100 s when the node `lost` is lost for good. One
// unit is 100 s.
static double units_without(const char* lost, Nanos alone) {
    World w;
    w.add_node("n1", 200, 36);
    w.add_node("n2", 100, 36);
    w.run_for(s(4));
    const JobId a = w.submit("n2", 100);
    w.jobs[a].report.alone = alone;
    w.run_for(s(100));
    ck_assert_text(w.where(a), "n1");
    w.disconnect(lost);
    w.run_for(s(10'000));
    return static_cast<double>(w.cost(a).micro) / 1e6;
}

START_TEST(a_job_of_a_lost_provider_is_billed_during_the_grace_time_only) {
    const double units = units_without("n1", {});
    ck_assert_msg(units > 1.59 && units < 1.61, "it cost %f", units);
}
END_TEST

START_TEST(a_job_whose_home_is_away_is_billed_no_longer_than_its_node_lets_it_run_alone) {
    const double units = units_without("n2", s(200));
    ck_assert_msg(units > 2.99 && units < 3.03, "it cost %f", units);
}
END_TEST

// Between two places, and while it runs on, the market's clock is ahead of a report by what
// messages take. Once it stands still or runs under a new epoch, the home's sum is all that it ran:
// the market takes back what it reckoned too much, and counts on where a home forgot a stretch.
START_TEST(a_sum_is_the_last_word_where_a_run_ended_or_a_new_one_began) {
    const JobPhase phases[] = {JobPhase::waiting, JobPhase::starting, JobPhase::running,
                               JobPhase::moving,  JobPhase::freezing, JobPhase::frozen,
                               JobPhase::thawing, JobPhase::finished};
    for (const JobPhase phase : phases)
        for (const bool stands : {false, true})
            for (const bool new_epoch : {false, true})
                for (const int64_t reported : {5, 59, 60, 64}) {
                    Job job;
                    JobReport& r = job.record.report;
                    r.phase = phase;
                    JobReport before = r;
                    r.stands = stands;
                    if (new_epoch) r.epoch = r.epoch.next();
                    r.stats.run_time = s(reported);
                    const bill::Reading read = bill::read(job, before, s(60));
                    const bool still = phase == JobPhase::waiting || phase == JobPhase::frozen ||
                                       phase == JobPhase::finished;
                    const bool anew = phase == JobPhase::running && (stands || new_epoch);
                    ck_assert(read.complete == (still || anew));
                    const bool forgot = reported == 5;
                    ck_assert(read.total == (!read.complete ? s(std::max<int64_t>(60, reported))
                                             : forgot       ? s(60)
                                                            : s(reported)));
                    ck_assert(job.record.skew == (read.complete && forgot ? s(55) : s(0)));
                }
}
END_TEST

UNIT_SUITE(market_bills, a_sum_is_the_last_word_where_a_run_ended_or_a_new_one_began,
           what_ran_while_the_market_was_away_is_billed_at_the_last_price,
           the_last_price_holds_while_a_node_takes_nobody,
           a_guest_of_a_node_that_is_away_pays_no_less_because_others_would_have_its_place,
           a_home_that_is_away_pays_what_others_would,
           a_job_that_began_while_the_market_was_away_is_billed_for_all_of_it,
           a_job_that_moved_while_the_market_was_away_is_billed_at_each_place_for_what_it_ran_there,
           a_wall_clock_that_is_set_charges_nothing_and_loses_nothing,
           a_home_that_restarts_and_forgets_a_stretch_makes_nobody_poorer,
           a_job_of_a_lost_provider_is_billed_during_the_grace_time_only,
           a_job_whose_home_is_away_is_billed_no_longer_than_its_node_lets_it_run_alone);
