// SPDX-License-Identifier: GPL-2.0-or-later
// The components of one job may have to be on named nodes, apart, on few nodes, or near each other.
// A job that never fits says why.
#include "tests/unit/gang_market.hpp"

using namespace souk;
using namespace souk::market;

START_TEST(components_are_on_the_nodes_that_they_are_for_or_apart_or_on_few) {
    World w;
    three(w);
    const auto named =
        laid(w, 2, 1, [](JobReport& r) { r.only_node = r.component == 0 ? "n3" : "n2"; });
    w.run_for(s(2));
    ck_assert_text(where(w, named), "n3 n2");
    for (const Order& order : w.orders) ck_assert(order.layouts);
    // n3 is full: two that are apart leave it alone, and none is with the other.
    const auto apart = laid(w, 2, 1, [](JobReport& r) { r.spread = 1; });
    w.run_for(s(2));
    ck_assert_text(where(w, apart), "n1 n2");
    // A better bid takes the place that one of them is for: both leave, though others have room.
    for (const JobId& id : apart) w.market->cancel(id, 0);
    const auto better = laid(
        w, 1, 1, [](JobReport& r) { r.only_node = "n3"; }, 90);
    w.run_for(s(5));
    ck_assert_text(where(w, better), "n3");
    for (const JobId& id : named) ck_assert(w.jobs.at(id).report.phase == JobPhase::frozen);
}
END_TEST

START_TEST(a_gang_that_is_to_lie_on_few_nodes_does_so_where_the_speed_is_the_same) {
    World w;
    for (const auto& [name, cpus] : {std::pair("n1", 1), std::pair("n2", 1), std::pair("n3", 3)})
        w.add_node(name, 100, 1, cpus);
    w.run_for(s(4));
    const auto loose = laid(w, 2, 1, {});
    w.run_for(s(2));
    ck_assert_text(where(w, loose), "n1 n2");
    for (const JobId& id : loose) w.market->cancel(id, 0);
    w.run_for(s(2));
    const auto few = laid(w, 2, 1, [](JobReport& r) { r.pack = true; });
    w.run_for(s(2));
    ck_assert_text(where(w, few), "n3 n3");
}
END_TEST

START_TEST(a_gang_whose_components_never_fit_says_which_and_why) {
    World w;
    three(w);
    const auto unknown = laid(w, 2, 1, [](JobReport& r) {
        if (r.component == 1) r.only_node = "n4";
    });
    w.run_for(s(2));
    ck_assert(code(w, unknown[0]) == ReasonCode::component_node_unknown);
    ck_assert_text(why(w, unknown[0]),
                   "component 1 is for node n4, which the market does not know");
    const auto small = laid(w, 2, 1, [](JobReport& r) { r.only_node = "n3"; });
    w.run_for(s(2));
    ck_assert(code(w, small[1]) == ReasonCode::component_node_small);
    ck_assert_text(why(w, small[1]),
                   "the components for node n3 never fit there: 2 CPUs and 200 MB");
    const auto apart = laid(w, 4, 1, [](JobReport& r) { r.spread = 1; });
    w.run_for(s(2));
    ck_assert(code(w, apart[0]) == ReasonCode::components_few_nodes);
    ck_assert_text(why(w, apart[0]), "its components need 4 nodes; 3 on the market can take one");
    // The node joins: the gang that has a component for it begins.
    w.add_node("n4", 100, 1, 2);
    w.run_for(s(4));
    ck_assert_text(w.where(unknown[1]), "n4");
}
END_TEST

START_TEST(components_for_a_node_that_is_off_say_when_it_opens_and_begin_then) {
    World w;
    three(w);
    const ProviderReport open = w.providers.at("n3");
    ProviderReport off = open;
    off.on_market = false;
    off.opens = Nanos::from_s(1'800'000'000);
    w.set_provider(off);
    w.run_for(s(1));
    const auto named = laid(w, 2, 1, [](JobReport& r) {
        if (r.component == 1) r.only_node = "n3";
    });
    w.run_for(s(2));
    ck_assert(code(w, named[0]) == ReasonCode::component_node_away);
    ck_assert_text(why(w, named[1]),
                   "the components for node n3 wait for it: it is off until 2027-01-15 08:00 UTC");
    w.set_provider(open);
    w.run_for(s(4));
    ck_assert_text(w.where(named[1]), "n3");
    w.disconnect("n3");
    const auto later = laid(w, 1, 1, [](JobReport& r) { r.only_node = "n3"; });
    w.run_for(s(1));
    ck_assert_text(why(w, later[0]), "the components for node n3 wait for it: it is not connected");
}
END_TEST

START_TEST(components_are_on_nodes_that_are_near_each_other_or_wait_and_say_so) {
    // Four nodes of two CPUs: two of each group, the first group farther from each other.
    World w;
    for (const char* name : {"n1", "n2", "n3", "n4"}) w.add_node(name, 100, 1, 2);
    const auto group = [&](const char* node, const char* name, int64_t trip_us, int64_t mbit) {
        ProviderReport p = w.providers.at(node);
        p.near_group = name, p.near_trip_us = trip_us, p.near_mbit = mbit;
        w.set_provider(p);
    };
    group("n1", "far", 900, 1'000), group("n3", "far", 900, 1'000);
    group("n2", "rack", 90, 10'000), group("n4", "rack", 90, 0);
    const auto near = laid(w, 4, 1, [](JobReport& r) { r.near = true, r.near_trip_us = 100; });
    w.run_for(s(4));
    ck_assert_text(where(w, near), "n2 n2 n4 n4");
    const auto wide = laid(w, 4, 1, [](JobReport& r) { r.near = true, r.near_mbit = 10'000; });
    w.run_for(s(4));
    ck_assert(code(w, wide[0]) == ReasonCode::components_not_near);
    ck_assert_text(why(w, wide[0]),
                   "its components fit on the nodes, but not on nodes that are "
                   "near each other as it asks");
    // The owner says how fast n3 is: it runs there as soon as there are two such nodes.
    group("n1", "far", 900, 10'000), group("n3", "far", 900, 40'000);
    w.run_for(s(4));
    ck_assert_text(where(w, wide), "n1 n1 n3 n3");
}
END_TEST

START_TEST(a_gang_that_fits_in_sum_but_on_no_nodes_says_so) {
    World w;
    for (const char* name : {"n1", "n2", "n3"}) w.add_node(name, 100, 1, 3);
    w.run_for(s(4));
    const auto four = laid(w, 4, 2, {});  // 8 of 9 CPUs, and one for each node
    w.run_for(s(2));
    ck_assert_text(where(w, four), "waiting waiting waiting waiting");
    ck_assert(code(w, four[0]) == ReasonCode::components_never_fit);
    ck_assert(w.market->reason(*w.market->find(four[3])).code == ReasonCode::components_never_fit);
}
END_TEST

UNIT_SUITE(market_gang_places, components_are_on_the_nodes_that_they_are_for_or_apart_or_on_few,
           a_gang_that_is_to_lie_on_few_nodes_does_so_where_the_speed_is_the_same,
           a_gang_whose_components_never_fit_says_which_and_why,
           components_for_a_node_that_is_off_say_when_it_opens_and_begin_then,
           components_are_on_nodes_that_are_near_each_other_or_wait_and_say_so,
           a_gang_that_fits_in_sum_but_on_no_nodes_says_so);
