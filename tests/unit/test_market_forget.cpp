// SPDX-License-Identifier: GPL-2.0-or-later
// A node that will not come back: when a market may forget it, and that its books stay right. World
// (market_world.hpp) adds up paid and earned, receipts and balances after each step.
#include "kernel/base/rng.hpp"
#include "tests/unit/market_world.hpp"

using namespace souk;
using namespace souk::market;

namespace {

constexpr Nanos s(int64_t n) { return Nanos::from_s(n); }

void three_named(World& w) {
    w.add_node("n1", 100, 1);
    w.add_node("n2", 90, 1);
    w.add_node("n3", 10, 1);
    w.run_for(s(4));
}
std::string refused(World& w, const NodeName& node, uint32_t uid = 0) {
    const auto said = w.market->forget(node, uid, w.now);
    return said ? "" : said.error().message;
}
void forget(World& w, const NodeName& node) {
    ck_assert_text(refused(w, node), "");
    ck_assert_text(w.market->audit(), "");
    w.run_for(s(1));
    ck_assert(!w.market->find_node(node) && !w.stored_nodes.contains(node));
}
Money earned(World& w, const NodeName& node) {
    return w.market->ledger().balance(Holder::provider(node));
}

}  // namespace

START_TEST(a_node_that_is_connected_or_has_a_job_is_not_forgotten) {
    World w;
    three_named(w);
    const JobId there = w.submit("n3", 100), submitted = w.submit("n1", 90);
    w.run_for(s(1));
    ck_assert_text(w.where(there), "n1");
    ck_assert_text(refused(w, "n9"), "no such node: n9");
    ck_assert_text(refused(w, "n1", 1000), "only root may have a node forgotten");
    ck_assert_text(refused(w, "n1"),
                   "node n1 is connected: pvdctl market off empties it, and without agentd it can "
                   "be forgotten");
    w.disconnect("n1");
    w.run_for(s(1));
    ck_assert_text(refused(w, "n1"),
                   "job n1.1 was submitted on node n1 and has not ended: marketctl cancel n1.1");
    w.market->cancel(submitted, 0);
    w.run_for(s(1));
    ck_assert_text(
        refused(w, "n1"),
        "job n1.1 was submitted on node n1 and may still run on n2 until its lease ends");
    w.disconnect("n2");  // lost for longer than the grace: it counts as stopped
    w.run_for(s(100));
    ck_assert_text(
        refused(w, "n1"),
        "job n3.1 is on node n1: marketctl node lost n1 says that it goes on without it");
    ck_assert(w.market->find_node("n1") && w.stored_nodes.contains("n1"));
}
END_TEST

START_TEST(what_a_forgotten_node_has_earned_stays_in_the_books_and_is_there_when_it_comes_back) {
    World w;
    three_named(w);
    const JobId a = w.submit("n3", 100, s(600));
    w.run_for(s(700));
    ck_assert_text(w.where(a), "finished");
    const Money sum = earned(w, "n1"), paid = w.market->totals(w.now).paid;
    ck_assert_int_gt(sum.micro, 0);
    w.disconnect("n1");
    w.run_for(s(1));
    forget(w, "n1");
    ck_assert(earned(w, "n1") == sum);
    for (int life = 0; life < 2; ++life, w.restart()) {
        ck_assert(!w.market->find_node("n1"));
        ck_assert(w.market->totals(w.now).paid == paid && w.market->totals(w.now).earned == paid);
        ck_assert_text(w.market->audit(), "");
    }
    for (const char* node : {"n1", "n2", "n3"}) w.connect(node);
    w.run_for(s(5));
    ck_assert(w.market->find_node("n1")->record.earned == sum);
    const JobId b = w.submit("n3", 100, s(600));
    w.run_for(s(700));
    ck_assert_text(w.where(b), "finished");
    ck_assert(earned(w, "n1") > sum && w.market->find_node("n1")->record.earned > sum);
    ck_assert(w.market->totals(w.now).paid == w.market->totals(w.now).earned);
}
END_TEST

START_TEST(a_cancelled_job_of_a_forgotten_home_has_ended) {
    World w;
    three_named(w);
    const JobId a = w.submit("n3", 100);
    w.run_for(s(1));
    w.market->freeze(a, true, 0);
    w.run_for(s(1));
    ck_assert_text(w.where(a), "frozen");
    w.disconnect("n3");
    w.market->cancel(a, 0);
    w.run_for(s(1));
    forget(w, "n3");
    ck_assert(w.market->find(a)->phase() == JobPhase::finished);
    ck_assert_text(w.market->find(a)->record.report.why, "its home node n3 no longer knows it");
    ck_assert(w.market->find_node("n1")->jobs.empty());
    w.run_for(s(100));
}
END_TEST

START_TEST(a_cancelled_job_on_its_way_may_run_until_its_lease_ends_or_its_nodes_are_lost) {
    for (const bool leased : {true, false}) {
        World w;
        three_named(w);
        w.transit = s(20);
        const JobId a = w.submit("n3", 100);
        w.run_for(s(1));
        if (leased) w.jobs.at(a).report.alone = s(10);
        w.tell(w.jobs.at(a));
        ck_assert(w.market->find(a)->phase() == JobPhase::starting);
        w.disconnect("n3");
        const Nanos lost = w.now;
        w.market->cancel(a, 0);
        w.run_for(s(1));
        const std::string why =
            "job n3.1 was submitted on node n3 and may begin to run on n1: try again when its "
            "lease has ended, or agentd on n1 is stopped";
        ck_assert_text(refused(w, "n3"), why);
        if (leased) {
            while (w.now + s(1) < lost + s(10)) w.run_for(s(1));
            ck_assert_text(refused(w, "n3"), why);
        } else {
            w.run_for(s(1000));
            ck_assert_text(refused(w, "n3"), why);
            w.disconnect("n1");
            w.run_for(s(1));
            ck_assert_text(refused(w, "n3"), why);
            w.run_for(w.options.grace);
        }
        w.run_for(s(1));
        forget(w, "n3");
        ck_assert(w.market->find(a)->phase() == JobPhase::finished);
    }
}
END_TEST

START_TEST(what_was_to_go_to_a_forgotten_node_goes_where_its_bid_wins_a_place) {
    World w;
    three_named(w);
    const JobId a = w.submit("n3", 100);
    w.run_for(s(1));
    w.disconnect("n2");
    w.run_for(s(1));
    Job& job = const_cast<Job&>(*w.market->find(a));
    job.record.hold = Hold::at_node;  // as an operator said while n2 was there
    job.record.hold_node = "n2";
    forget(w, "n2");
    ck_assert(w.market->find(a)->record.hold == Hold::none);
    ck_assert_text(w.where(a), "n1");
    ck_assert_text(w.comment(a), "was held on n2, which is lost");
}
END_TEST

START_TEST(nodes_come_and_are_forgotten_at_random_and_the_books_are_right) {
    // Ten nodes of random speeds that go and come, jobs between them; who may be forgotten is.
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        World w;
        Rng rng(seed);
        std::vector<NodeName> names;
        for (int i = 0; i < 10; ++i) {
            names.push_back("n" + std::to_string(i));
            w.add_node(names.back(), rng.between(10, 200), rng.between(1, 5), 2);
        }
        w.run_for(s(4));
        int forgotten = 0;
        for (int round = 0; round < 150; ++round) {
            const NodeName& node = names[rng.below(names.size())];
            const bool there = w.connected.contains(node);
            if (rng.below(3) > 0 && there)
                w.submit(node, rng.between(1, 100), s(rng.between(1, 60)));
            else if (there && w.connected.size() > 4)
                w.disconnect(node);
            else if (!there && rng.below(2) == 0)
                w.connect(node);
            else if (!there && w.market->forget(node, 0, w.now))
                ++forgotten;
            ck_assert_text(w.market->audit(), "");
            w.run_for(s(rng.between(0, 90)));
            if (rng.below(20) == 0) {
                const std::set<NodeName> were = w.connected;
                w.restart();
                for (const NodeName& name : were) w.connect(name);
            }
        }
        ck_assert_int_gt(forgotten, 0);
    }
}
END_TEST

UNIT_SUITE(market_forget, a_node_that_is_connected_or_has_a_job_is_not_forgotten,
           what_a_forgotten_node_has_earned_stays_in_the_books_and_is_there_when_it_comes_back,
           a_cancelled_job_of_a_forgotten_home_has_ended,
           a_cancelled_job_on_its_way_may_run_until_its_lease_ends_or_its_nodes_are_lost,
           what_was_to_go_to_a_forgotten_node_goes_where_its_bid_wins_a_place,
           nodes_come_and_are_forgotten_at_random_and_the_books_are_right);
