// SPDX-License-Identifier: GPL-2.0-or-later
// The market, and suspended jobs that stand in memory first. World::check holds memory and CPUs of
// every node at every step, by its own count.
#include <algorithm>

#include "kernel/base/rng.hpp"
#include "market/core/market.hpp"
#include "market/core/standing.hpp"
#include "tests/unit/market_world.hpp"

using namespace souk;

namespace {

constexpr Nanos s(int64_t v) { return Nanos::from_s(v); }

market::MarketOptions standing(int64_t most_s = 3'600) {
    market::MarketOptions o;
    o.solver.stand_max = s(most_s);
    o.solver.link_bytes_per_s = 1'000'000;  // 100 MB are written in 100 s
    return o;
}

const JobReport& report(const market::World& w, const JobId& id) { return w.jobs.at(id).report; }
bool stands(const market::World& w, const JobId& id) {
    const JobReport& r = report(w, id);
    return r.phase == JobPhase::frozen && r.in_place;
}
std::vector<std::string> why(const market::World& w, const JobId& id) {
    std::vector<std::string> codes;
    for (const auto& reason : w.market->reasons(*w.market->find(id), w.now))
        codes.emplace_back(market::to_string(reason.code));
    return codes;
}
bool says(const market::World& w, const JobId& id, const char* code) {
    const auto all = why(w, id);
    return std::find(all.begin(), all.end(), code) != all.end();
}

}  // namespace

START_TEST(a_displaced_job_stands_costs_nothing_and_goes_on_where_it_stood) {
    market::World w(standing());
    w.add_node("n1", 100, 1);
    w.run_for(s(4));
    const JobId low = w.submit("n1", 2);
    w.run_for(s(10));
    const JobId high = w.submit("n1", 50, s(20));
    w.run_for(s(1));
    ck_assert_text(w.where(high), "n1");
    ck_assert(stands(w, low));
    ck_assert_text(w.comment(low), "displaced by job n1.2 at 50; 51 would win it back");
    ck_assert(says(w, low, "stands_here"));
    ck_assert(w.orders[1].kind == Order::Kind::suspend && w.orders[1].stand);
    const Money cost = w.cost(low);
    w.run_for(s(10));
    ck_assert(w.cost(low) == cost);
    w.run_for(s(15));
    ck_assert_text(w.where(low), "n1");
    ck_assert(!says(w, low, "stands_here"));
    ck_assert_int_eq(report(w, low).stats.freezes + report(w, low).stats.thaws, 0);
    ck_assert_int_eq(w.orders.size(), 4);
    // Without the option the job goes to disk, as before.
    market::World off;
    off.add_node("n1", 100, 1);
    off.run_for(s(4));
    const JobId one = off.submit("n1", 2);
    off.run_for(s(10));
    (void)off.submit("n1", 50);
    off.run_for(s(1));
    ck_assert(off.phase(one) == JobPhase::frozen && !report(off, one).in_place);
    ck_assert(!off.orders[1].stand);
}
END_TEST

START_TEST(its_memory_is_given_to_who_wins_it_the_lowest_bids_and_the_last_that_stopped_first) {
    market::World w(standing());
    w.add_node("n1", 100, 1, 2, 1000);
    w.run_for(s(4));
    const JobId a = w.submit("n1", 5, Nanos::never(), 1, 300);
    const JobId b = w.submit("n1", 3, Nanos::never(), 1, 300);
    w.run_for(s(1));
    const JobId c = w.submit("n1", 50, s(300), 2, 200);
    w.run_for(s(1));
    ck_assert(stands(w, a) && stands(w, b));
    ck_assert_text(w.where(c), "n1");
    // 200 MB are free: another 500 take b's memory alone.
    w.providers["n1"].cpus = 3;
    w.set_provider(w.providers["n1"]);
    const JobId d = w.submit("n1", 60, s(100), 1, 500);
    w.run_for(s(1));
    ck_assert_text(w.where(d), "n1");
    ck_assert(stands(w, a));
    ck_assert(w.phase(b) == JobPhase::frozen && !stands(w, b));
    const auto to_disk = std::find_if(w.orders.begin(), w.orders.end(), [&](const Order& o) {
        return o.id == b && !o.stand && o.kind == Order::Kind::suspend;
    });
    ck_assert(to_disk != w.orders.end());
    ck_assert_text(to_disk->reason, "job n1.4 needs the memory in which it stood on n1");
}
END_TEST

START_TEST(where_memory_is_short_it_goes_to_disk_at_once) {
    market::World w(standing());
    w.add_node("n1", 100, 1, 1, 1000);
    w.run_for(s(4));
    const JobId low = w.submit("n1", 2, Nanos::never(), 1, 600);
    w.run_for(s(1));
    const JobId high = w.submit("n1", 50, s(20), 1, 600);
    w.run_for(s(1));
    ck_assert_text(w.where(high), "n1");
    ck_assert(w.phase(low) == JobPhase::frozen && !stands(w, low));
    // A job whose need of memory is not known does not stand.
    const JobId unknown = w.submit("n1", 60, Nanos::never(), 1, 0);
    w.run_for(s(1));
    ck_assert_text(w.where(unknown), "n1");
    (void)w.submit("n1", 70, Nanos::never(), 1, 100);
    w.run_for(s(1));
    ck_assert(w.phase(unknown) == JobPhase::frozen && !stands(w, unknown));
}
END_TEST

START_TEST(it_goes_to_disk_after_the_time_of_the_rule_or_after_the_most) {
    for (const int64_t most : {3'600, 40}) {
        market::World w(standing(most));
        w.add_node("n1", 100, 1);
        w.run_for(s(4));
        const JobId low = w.submit("n1", 2);
        w.run_for(s(1));
        (void)w.submit("n1", 50);
        w.run_for(s(1));
        ck_assert(stands(w, low));
        // With few cases the job stands as long as a write and a read of 100 MB take.
        const int64_t kept = std::min<int64_t>(most, 200);
        w.run_for(s(kept - 3));
        ck_assert(stands(w, low));
        w.run_for(s(4));
        ck_assert(w.phase(low) == JobPhase::frozen && !stands(w, low));
        ck_assert_text(w.orders.back().reason, "stood long enough on n1");
    }
}
END_TEST

START_TEST(a_place_elsewhere_takes_it_over_the_disk) {
    market::World w(standing());
    w.add_node("n1", 100, 1);
    w.run_for(s(4));
    const JobId low = w.submit("n1", 2);
    w.run_for(s(1));
    (void)w.submit("n1", 50);
    w.run_for(s(1));
    ck_assert(stands(w, low));
    w.add_node("n2", 50, 1);
    w.run_for(s(1));
    ck_assert_text(w.where(low), "n2");
    ck_assert_int_eq(report(w, low).stats.freezes, 1);
    ck_assert_text(w.orders[w.orders.size() - 2].reason,
                   "has won a place on n2, and goes there over the disk");
}
END_TEST

START_TEST(an_owner_who_leaves_and_an_operator_have_it_on_disk) {
    market::World w(standing());
    w.add_node("n1", 100, 1, 1, 1000);
    w.add_node("home", 1, 1'000);
    w.run_for(s(4));
    const JobId low = w.submit("home", 2);
    w.run_for(s(1));
    const JobId high = w.submit("home", 50);
    w.run_for(s(1));
    ck_assert(stands(w, low));
    // The node's owner uses it. It takes no new job, and jobs that stand there stand on.
    ProviderReport p = w.providers["n1"];
    p.cannot = "its owner uses it";
    w.set_provider(p);
    w.run_for(s(5));
    ck_assert(stands(w, low));
    p.cannot.clear();
    p.on_market = false;
    w.set_provider(p);
    w.run_for(s(5));
    ck_assert(w.phase(low) == JobPhase::frozen && !stands(w, low));
    ck_assert_text(w.where(high), "frozen");
    ck_assert(!stands(w, high));
    p.on_market = true;
    w.set_provider(p);
    w.run_for(s(5));
    ck_assert_text(w.where(high), "n1");
    const JobId best = w.submit("home", 60);
    w.run_for(s(1));
    ck_assert_text(w.where(best), "n1");
    ck_assert(stands(w, high));
    ck_assert(w.market->freeze(high, false, 0).has_value());
    w.run_for(s(1));
    ck_assert(w.phase(high) == JobPhase::frozen && !stands(w, high));
    // A running job that is frozen by hand has never stood either.
    ck_assert(w.market->freeze(best, true, 0).has_value());
    w.run_for(s(1));
    ck_assert(w.phase(best) == JobPhase::frozen && !stands(w, best));
}
END_TEST

START_TEST(what_stands_goes_to_disk_where_less_memory_is_offered) {
    market::World w(standing());
    w.add_node("n1", 100, 1, 1, 1000);
    w.run_for(s(4));
    const JobId low = w.submit("n1", 2, Nanos::never(), 1, 300);
    w.run_for(s(1));
    const JobId middle = w.submit("n1", 5, Nanos::never(), 1, 300);
    w.run_for(s(1));
    const JobId high = w.submit("n1", 50, Nanos::never(), 1, 300);
    w.run_for(s(1));
    ck_assert(stands(w, low) && stands(w, middle));
    ProviderReport p = w.providers["n1"];
    p.memory_mb = p.free_mb = 700;  // World counts by what it has, not by what it offers
    ck_assert(w.market->report("n1", p, w.now).has_value());
    w.run_for(s(5));
    ck_assert_text(w.where(high), "n1");
    ck_assert(w.phase(low) == JobPhase::frozen && !stands(w, low));
    ck_assert(stands(w, middle));
    ck_assert_text(w.orders.back().reason,
                   "node n1 does not offer the memory any more in which it stood");
}
END_TEST

START_TEST(a_shorter_time_that_is_set_holds_for_those_that_stand) {
    market::World w(standing());
    w.add_node("n1", 100, 1);
    w.run_for(s(4));
    const JobId low = w.submit("n1", 2);
    w.run_for(s(10));
    (void)w.submit("n1", 50, s(2'000));
    w.run_for(s(20));
    ck_assert(stands(w, low));
    for (const char* most : {"2h", "60s"}) {
        ck_assert(w.market->set_option("stand-max", most, "", 0, w.now));
        w.run_for(s(10));
        ck_assert(stands(w, low));
    }
    w.run_for(s(30));
    ck_assert(!stands(w, low));
    ck_assert_str_eq(to_string(report(w, low).phase), "frozen");
}
END_TEST

START_TEST(a_gang_gets_the_memory_of_those_that_stand_on_all_its_nodes) {
    for (const bool optional : {false, true}) {
        market::World w(standing());
        for (const char* node : {"n1", "n2"}) w.add_node(node, 100, 1);
        w.run_for(s(4));
        std::vector<JobId> low;
        for (int i = 0; i < 2; ++i) low.push_back(w.submit("n1", 2, Nanos::never(), 1, 600));
        w.run_for(s(4));
        for (int i = 0; i < 2; ++i) (void)w.submit("n1", 50, s(5'000), 1, 300);
        w.run_for(s(4));
        for (const JobId& id : low) ck_assert(stands(w, id));
        const auto gang = w.submit_gang("n1", 90, 2, 1, s(1'000), optional ? 1 : UINT32_MAX,
                                        [](JobReport& r) { r.terms.memory_mb = 500; });
        w.run_for(s(20));
        for (const JobId& id : gang) ck_assert_str_eq(to_string(report(w, id).phase), "running");
        for (const JobId& id : low) ck_assert(!stands(w, id));
    }
}
END_TEST

START_TEST(who_cannot_go_to_disk_keeps_its_memory_and_holds_nobody_else_up) {
    for (const bool home_is_away : {true, false}) {
        market::World w(standing());
        w.add_node("n1", 100, 1);
        for (const char* home : {"n2", "n3"}) w.add_node(home, 100, 1'000);
        w.run_for(s(4));
        const JobId least = w.submit("n2", 2, Nanos::never(), 1, 400);
        w.run_for(s(4));
        const JobId other = w.submit("n3", 3, Nanos::never(), 1, 400);
        w.run_for(s(4));
        (void)w.submit("n1", 50, s(5'000), 1, 100);
        w.run_for(s(4));
        ck_assert(stands(w, least) && stands(w, other));
        if (home_is_away)
            w.disconnect("n2");
        else
            w.refuse = [&](const Order& order) -> std::optional<OrderFailed> {
                if (order.id != least) return std::nullopt;
                return OrderFailed{order.id, order.seq, order.node, "not now"};
            };
        const JobId fits = w.submit("n1", 90, s(1'000), 1, 500);
        w.run_for(s(20));
        ck_assert_str_eq(to_string(report(w, fits).phase), "running");
        ck_assert(stands(w, least) && !stands(w, other));
        // A job that would also need its memory has no place, and bids elsewhere.
        const JobId large = w.submit("n1", 95, s(1'000), 1, 700);
        w.run_for(s(20));
        ck_assert_str_eq(to_string(report(w, large).phase), "waiting");
        ck_assert_str_eq(to_string(report(w, fits).phase), "running");
        if (home_is_away) w.connect("n2");
        w.refuse = nullptr;
        w.run_for(s(600));
        ck_assert_str_eq(to_string(report(w, large).phase), "running");
        ck_assert(!stands(w, least));
    }
}
END_TEST

START_TEST(a_word_by_hand_that_crosses_a_stop_is_carried_out) {
    market::World w(standing());
    w.add_node("n1", 100, 1);
    w.run_for(s(4));
    const JobId low = w.submit("n1", 2);
    w.run_for(s(10));
    w.transit = s(2);
    (void)w.submit("n1", 50, s(2'000));
    w.run_for(s(1));
    ck_assert(w.orders.back().kind == Order::Kind::suspend && w.orders.back().stand);
    ck_assert(w.market->freeze(low, false, 0).has_value());
    w.run_for(s(20));
    ck_assert(!stands(w, low));
    ck_assert_str_eq(to_string(report(w, low).phase), "frozen");
}
END_TEST

START_TEST(a_market_that_was_started_again_knows_who_stands) {
    market::World w(standing());
    w.add_node("n1", 100, 1);
    w.run_for(s(4));
    const JobId low = w.submit("n1", 2);
    w.run_for(s(1));
    const JobId high = w.submit("n1", 50, s(150));
    w.run_for(s(1));
    ck_assert(stands(w, low));
    w.restart();
    w.connect("n1");
    w.run_for(s(100));
    ck_assert(stands(w, low));
    w.run_for(s(60));
    ck_assert_text(w.where(high), "finished");
    ck_assert_text(w.where(low), "n1");
    ck_assert_int_eq(report(w, low).stats.freezes, 0);
}
END_TEST

START_TEST(turns_of_proportional_share_are_stops_where_memory_suffices) {
    market::MarketOptions o = standing();
    o.solver.algorithm = "proportional_share";
    o.solver.quantum = s(10);
    for (const int64_t memory : {1'000, 250}) {
        market::World w(o);
        w.add_node("n1", 100, 1, 1, memory);
        w.run_for(s(4));
        std::vector<JobId> ids;
        for (uint32_t uid = 1; uid <= 4; ++uid)
            ids.push_back(w.submit("n1", 10, Nanos::never(), 1, 100, {}, 1000 + uid));
        w.run_for(s(400));
        uint32_t freezes = 0;
        for (const JobId& id : ids) {
            freezes += report(w, id).stats.freezes;
            const double ran = w.run_time(w.jobs.at(id)).seconds();
            ck_assert_msg(ran > 80 && ran < 120, "%s ran %f s", id.text().c_str(), ran);
        }
        const auto stops = std::count_if(w.orders.begin(), w.orders.end(),
                                         [](const Order& order) { return order.stand; });
        ck_assert_int_ge(stops, memory == 1'000 ? 30 : 5);
        if (memory == 1'000)
            ck_assert_uint_eq(freezes, 0);
        else
            ck_assert_uint_ge(freezes, 5);  // two fit, the others do not
    }
}
END_TEST

// Homes obey late or say no, nodes come and go, jobs end; World::check counts at each step.
START_TEST(in_random_markets_memory_is_never_given_twice_and_nobody_waits_for_ever) {
    for (uint64_t seed = 1; seed <= 40; ++seed) {
        Rng rng(seed);
        market::MarketOptions o = standing(rng.chance(0.3) ? rng.between(1, 60) : 3'600);
        if (rng.chance(0.3)) o.solver.algorithm = "proportional_share";
        if (rng.chance(0.2)) o.solver.min_stay = s(rng.between(0, 20));
        market::World w(o);
        w.transit = Nanos::from_ms(rng.between(1, 3'000));
        const auto nodes = rng.between(1, 3);
        w.add_node("away", 100, 1'000);  // a home that comes and goes; nobody pays its price
        for (int64_t n = 1; n <= nodes; ++n)
            w.add_node("n" + std::to_string(n), rng.between(1, 2) * 100, 1,
                       static_cast<int32_t>(rng.between(1, 3)), rng.between(2, 8) * 100);
        w.run_for(s(4));
        if (rng.chance(0.5))
            w.refuse = [&](const Order& order) -> std::optional<OrderFailed> {
                if (!rng.chance(0.1)) return std::nullopt;
                return OrderFailed{order.id, order.seq, order.node, "not now"};
            };
        for (int i = 0; i < 60; ++i) {
            const auto what = rng.below(10);
            if (what < 6)
                (void)w.submit(rng.chance(0.7) ? "n1" : "away", rng.between(2, 60),
                               s(rng.between(1, 200)), static_cast<int32_t>(rng.between(1, 2)),
                               rng.between(0, 4) * 100, {},
                               1000 + static_cast<uint32_t>(rng.below(3)));
            if (what == 6 && nodes > 1) {
                ProviderReport p = w.providers["n2"];
                p.on_market = !p.on_market;
                w.set_provider(p);
            }
            if (what == 7 && !w.jobs.empty()) {
                auto it = w.jobs.begin();
                std::advance(it, rng.below(w.jobs.size()));
                (void)w.market->freeze(it->first, false, 0);
            }
            if (what == 9 && rng.chance(0.5))
                w.connected.contains("away") ? w.disconnect("away") : w.connect("away");
            if (what == 8 && rng.chance(0.2)) {
                w.restart();
                for (int64_t n = 1; n <= nodes; ++n) w.connect("n" + std::to_string(n));
            }
            w.run_for(Nanos::from_ms(rng.between(1, 20'000)));
        }
        w.refuse = nullptr;
        if (!w.connected.contains("away")) w.connect("away");
        for (int64_t n = 1; n <= nodes; ++n) {
            ProviderReport& p = w.providers["n" + std::to_string(n)];
            p.on_market = true;
            p.cpus = 3;
            p.memory_mb = p.free_mb = 800;
            w.set_provider(p);
        }
        for (const auto& [id, job] : w.jobs)
            if (job.report.phase != JobPhase::finished) (void)w.market->release(id, 0);
        w.run_for(s(20'000));
        for (const auto& [id, job] : w.jobs)
            ck_assert_msg(job.report.phase == JobPhase::finished, "seed %lu: %s is %s: %s", seed,
                          id.text().c_str(), to_string(job.report.phase), w.comment(id).c_str());
    }
}
END_TEST

UNIT_SUITE_LONG(market_standing, 120,
                a_displaced_job_stands_costs_nothing_and_goes_on_where_it_stood,
                its_memory_is_given_to_who_wins_it_the_lowest_bids_and_the_last_that_stopped_first,
                where_memory_is_short_it_goes_to_disk_at_once,
                it_goes_to_disk_after_the_time_of_the_rule_or_after_the_most,
                a_place_elsewhere_takes_it_over_the_disk,
                an_owner_who_leaves_and_an_operator_have_it_on_disk,
                what_stands_goes_to_disk_where_less_memory_is_offered,
                a_shorter_time_that_is_set_holds_for_those_that_stand,
                a_gang_gets_the_memory_of_those_that_stand_on_all_its_nodes,
                who_cannot_go_to_disk_keeps_its_memory_and_holds_nobody_else_up,
                a_word_by_hand_that_crosses_a_stop_is_carried_out,
                a_market_that_was_started_again_knows_who_stands,
                turns_of_proportional_share_are_stops_where_memory_suffices,
                in_random_markets_memory_is_never_given_twice_and_nobody_waits_for_ever);
