// SPDX-License-Identifier: GPL-2.0-or-later
// Jobs of several components in a market: told to the solver as one, ordered as one set. World
// (market_world.hpp) checks places, money and records after each step.
#include <utility>

#include "tests/unit/gang_market.hpp"

using namespace souk;
using namespace souk::market;

START_TEST(all_components_run_or_none_and_nobody_is_held_for_them) {
    World w;
    three(w);
    const JobId single = w.submit("n1", 50);
    w.run_for(s(1));
    const auto four = gang(w, "n1", 40, 4);
    w.run_for(s(2));
    ck_assert(where(w, four).find("waiting") == std::string::npos);
    ck_assert_text(w.where(single), "n1");
    // A better bid for all of n2: the gang leaves it as a whole.
    const JobId rich = w.submit("n2", 90, Nanos::never(), 2);
    w.run_for(s(5));
    ck_assert(w.where(rich) != "waiting");
    for (const JobId& id : four) ck_assert(w.jobs.at(id).report.phase == JobPhase::frozen);
    w.market->cancel(rich, 0);
    w.run_for(s(5));
    for (const JobId& id : four) ck_assert(w.jobs.at(id).report.phase == JobPhase::running);
}
END_TEST

START_TEST(a_gang_is_placed_when_all_of_it_is_known) {
    World w;
    three(w);
    {
        const auto two = gang(w, "n1", 40, 1);
        w.jobs.at(two[0]).report.components = 2;
        w.tell(w.jobs.at(two[0]));
        w.run_for(s(2));
        ck_assert_text(where(w, two), "waiting");
        ck_assert_text(why(w, two[0]),
                       "waits until the market knows all components of the job, 2 of them");
        ck_assert(w.market->reason(*w.market->find(two[0])).code == ReasonCode::components_coming);
    }
    const auto all = gang(w, "n2", 40, 3);
    w.run_for(s(2));
    ck_assert(where(w, all).find("waiting") == std::string::npos);
    for (const Order& order : w.orders) ck_assert(order.hold);
}
END_TEST

START_TEST(a_gang_of_which_one_stands_where_it_is_goes_on_there_as_a_whole) {
    for (const int64_t memory : {100, 500, 1'000}) {
        World w;
        three(w);
        const auto all = gang(w, "n1", 40, 3, 1, Nanos::never(), UINT32_MAX,
                              [&](JobReport& r) { r.terms.memory_mb = memory; });
        w.run_for(s(2));
        ck_assert_msg(where(w, all).find("waiting") == std::string::npos, "%s",
                      where(w, all).c_str());
        const std::string before = w.where(all[1]);
        ck_assert(w.market->freeze(all[1], true, 0).has_value());
        w.becomes_immovable(all[1], "it cannot be dumped");
        w.run_for(s(2));
        for (const JobId& id : all) ck_assert(w.phase(id) == JobPhase::frozen);
        ck_assert(w.jobs.at(all[1]).report.in_place);
        ck_assert(w.market->release(all[1], 0).has_value());
        w.run_for(s(5));
        for (const JobId& id : all)
            ck_assert_msg(w.phase(id) == JobPhase::running, "memory %d: %s: %s",
                          static_cast<int>(memory), where(w, all).c_str(), why(w, id).c_str());
        ck_assert_text(w.where(all[1]), before);
    }
}
END_TEST

// As when a gang goes back to its checkpoint: its home says of one after the other that it is
// frozen.
START_TEST(one_that_thaws_before_the_others_are_known_to_be_frozen_gets_them_to_it) {
    World w;
    three(w);
    const auto all = gang(w, "n1", 40, 3);
    w.run_for(s(2));
    w.transit = s(1'000);  // it is held for the others
    const auto goes_back = [&](const JobId& id) {
        World::stop_clock(w.jobs.at(id), w.now);
        w.jobs.at(id).report.phase = JobPhase::frozen;
        w.tell(w.jobs.at(id));
    };
    goes_back(all[2]);
    w.run_for(s(2));
    ck_assert(w.phase(all[2]) == JobPhase::thawing && w.phase(all[0]) == JobPhase::running);
    goes_back(all[0]);
    w.run_for(s(2));
    goes_back(all[1]);
    w.run_for(s(2));
    for (const JobId& id : all)
        ck_assert_msg(w.phase(id) == JobPhase::thawing, "%s", why(w, id).c_str());
}
END_TEST

START_TEST(a_gang_that_fits_nowhere_says_so) {
    World w;
    three(w);
    const auto six = gang(w, "n1", 40, 6);
    w.run_for(s(2));
    ck_assert_text(where(w, six), "waiting waiting waiting waiting waiting waiting");
    ck_assert_text(why(w, six[0]),
                   "its components need 6 CPUs at once; all nodes on the market have 5");
    ck_assert(w.market->reason(*w.market->find(six[0])).code == ReasonCode::components_too_large);
    ck_assert(w.orders.empty());
    const auto wide = gang(w, "n1", 40, 2, 3);
    w.run_for(s(2));
    ck_assert(w.market->reason(*w.market->find(wide[0])).code == ReasonCode::components_too_large ||
              w.market->reason(*w.market->find(wide[0])).code == ReasonCode::too_many_cpus);
}
END_TEST

START_TEST(a_node_of_an_older_version_gets_no_component) {
    World w;
    three(w);
    for (const char* node : {"n2", "n3"}) {
        ProviderReport p = w.providers.at(node);
        p.holds = false;
        w.set_provider(p);
    }
    const auto two = gang(w, "n1", 40, 2), more = gang(w, "n1", 30, 2);
    const JobId single = w.submit("n1", 20);
    w.run_for(s(2));
    ck_assert_text(where(w, two), "n1 n1");
    ck_assert_text(where(w, more), "waiting waiting");
    ck_assert_text(w.where(single), "n2");
}
END_TEST

START_TEST(an_algorithm_that_places_no_gangs_says_so_and_is_not_chosen_while_there_is_one) {
    World w;
    w.options.solver.algorithm = "balance";
    w.restart();
    three(w);
    const auto two = gang(w, "n1", 40, 2);
    w.run_for(s(2));
    ck_assert_text(where(w, two), "waiting waiting");
    ck_assert_text(why(w, two[0]),
                   "is not placed: the solver balance places no jobs of several components");
    ck_assert(w.market->reason(*w.market->find(two[0])).code == ReasonCode::components_refused);
    ck_assert(w.market->set_option("solver", "greedy_migration", "", 0, w.now).has_value());
    w.run_for(s(2));
    ck_assert(where(w, two).find("waiting") == std::string::npos);
    const auto back = w.market->set_option("solver", "balance", "", 0, w.now);
    ck_assert(!back.has_value());
    ck_assert_text(back.error().message,
                   "the solver balance places no jobs of several components, "
                   "and there are some");
}
END_TEST

START_TEST(a_component_whose_start_is_taken_back_may_go_to_the_same_node_again) {
    World w;
    three(w);
    int failures = 1;
    w.refuse = [&](const Order& order) -> std::optional<OrderFailed> {
        if (order.id.seq == 2 && failures > 0) {
            --failures;
            return OrderFailed{order.id, order.seq, order.node, {CauseCode::start_failed, "no"}};
        }
        return std::nullopt;
    };
    const auto four = gang(w, "n1", 40, 4);
    w.run_for(s(30));
    for (const JobId& id : four) ck_assert(w.jobs.at(id).report.phase == JobPhase::running);
    // Its home takes back what was held: the market blames no node for it.
    w.refuse = [](const Order& order) -> std::optional<OrderFailed> {
        return OrderFailed{order.id,
                           order.seq,
                           {},
                           because(CauseCode::components_taken_back, {{"component", "1"}})};
    };
    const auto one = gang(w, "n2", 30, 1);
    w.run_for(s(1));
    w.refuse = {};
    w.run_for(s(5));
    ck_assert(where(w, one) != "waiting");
}
END_TEST

START_TEST(a_market_that_is_restarted_knows_its_gangs_again) {
    World w;
    three(w);
    const auto four = gang(w, "n1", 40, 4);
    w.run_for(s(5));
    const std::string before = where(w, four);
    w.restart();
    for (const char* node : {"n1", "n2", "n3"}) w.connect(node);
    w.run_for(s(10));
    ck_assert_text(where(w, four), before.c_str());
    // One has ended: the others are a gang of three.
    w.end(w.jobs.at(four[3]));
    for (int i = 0; i < 3; ++i) {
        w.jobs.at(four[static_cast<size_t>(i)]).report.components = 3;
        w.tell(w.jobs.at(four[static_cast<size_t>(i)]));
    }
    w.run_for(s(2));
    w.restart();
    for (const char* node : {"n1", "n2", "n3"}) w.connect(node);
    w.run_for(s(10));
    for (int i = 0; i < 3; ++i)
        ck_assert(w.jobs.at(four[static_cast<size_t>(i)]).report.phase == JobPhase::running);
    ck_assert_uint_eq(w.market->solver().gangs(), 1);
}
END_TEST

START_TEST(an_optional_component_runs_beside_the_required_ones_when_it_has_a_place) {
    World w;
    three(w);
    const JobId single = w.submit("n1", 50);
    w.run_for(s(1));
    const auto five = gang(w, "n1", 40, 5, 1, Nanos::never(), 4);
    w.run_for(s(3));
    for (size_t i = 0; i < 4; ++i) ck_assert(w.jobs.at(five[i]).report.phase == JobPhase::running);
    ck_assert_text(w.where(five[4]), "waiting");
    w.market->cancel(single, 0);
    w.run_for(s(3));
    ck_assert(w.jobs.at(five[4]).report.phase == JobPhase::running);
    ck_assert_int_eq(std::count_if(w.orders.begin(), w.orders.end(),
                                   [](const Order& order) { return order.hold; }),
                     5);
    // Somebody who bids more displaces it, and the required ones go on.
    const JobId better = w.submit("n2", 90);
    w.run_for(s(5));
    ck_assert(w.where(better) != "waiting");
    ck_assert(w.jobs.at(five[4]).report.phase == JobPhase::frozen);
    for (size_t i = 0; i < 4; ++i) ck_assert(w.jobs.at(five[i]).report.phase == JobPhase::running);
    // Without them it has no place.
    const JobId best = w.submit("n2", 95, Nanos::never(), 2);
    w.run_for(s(5));
    ck_assert(w.where(best) != "waiting");
    for (const JobId& id : five) ck_assert(w.jobs.at(id).report.phase != JobPhase::running);
}
END_TEST

START_TEST(an_optional_component_may_stand_before_required_ones_and_need_more_than_there_is) {
    World w;
    three(w);
    const auto ids = w.submit_gang("n1", 40, 3, 1, Nanos::never(), UINT32_MAX, [](JobReport& wide) {
        if (wide.component != 1) return;
        wide.optional = true;
        wide.terms.cpus = 9;
    });
    w.run_for(s(5));
    ck_assert_text(w.where(ids[1]), "waiting");
    ck_assert(w.where(ids[0]) != "waiting");
    ck_assert(w.where(ids[2]) != "waiting");
}
END_TEST

UNIT_SUITE(market_gangs, a_gang_of_which_one_stands_where_it_is_goes_on_there_as_a_whole,
           all_components_run_or_none_and_nobody_is_held_for_them,
           a_gang_is_placed_when_all_of_it_is_known, a_gang_that_fits_nowhere_says_so,
           one_that_thaws_before_the_others_are_known_to_be_frozen_gets_them_to_it,
           a_node_of_an_older_version_gets_no_component,
           an_algorithm_that_places_no_gangs_says_so_and_is_not_chosen_while_there_is_one,
           a_component_whose_start_is_taken_back_may_go_to_the_same_node_again,
           a_market_that_is_restarted_knows_its_gangs_again,
           an_optional_component_runs_beside_the_required_ones_when_it_has_a_place,
           an_optional_component_may_stand_before_required_ones_and_need_more_than_there_is);
