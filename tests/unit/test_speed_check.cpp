// SPDX-License-Identifier: GPL-2.0-or-later
// Whether nodes are as fast as their owners say, from the run times of programs.
#include <map>

#include "market/core/speed_check.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {

using market::SpeedCheck;

// Nodes that claim one speed and have another. A program takes so many seconds at speed 100.
struct Nodes {
    SpeedCheck check;
    std::map<NodeName, int64_t> claims, speeds;
    int changes = 0;

    void add(const NodeName& name, int64_t claim, int64_t speed) {
        claims[name] = claim;
        speeds[name] = speed;
    }
    void run(const NodeName& node, uint32_t uid, const std::string& program, int64_t seconds,
             int64_t cpu_percent = 100) {
        const Nanos took = Nanos::from_s(seconds * 100 / speeds.at(node));
        changes += check.ended(
            {node, claims.at(node), uid, program, took, Nanos{took.ns / 100 * cpu_percent}});
    }
    void run_on_all(uint32_t uid, const std::string& program, int64_t seconds, int times = 4,
                    int64_t cpu_percent = 100) {
        for (int i = 0; i < times; ++i)
            for (const auto& [name, speed] : speeds) run(name, uid, program, seconds, cpu_percent);
    }
};

Nodes honest_and_liar(int64_t claim, int64_t speed) {
    Nodes nodes;
    nodes.add("a", 100, 100);
    nodes.add("b", 150, 150);
    nodes.add("liar", claim, speed);
    return nodes;
}

}  // namespace

START_TEST(a_node_that_gives_less_than_it_claims_counts_for_what_it_gives) {
    Nodes nodes = honest_and_liar(200, 120);
    nodes.run_on_all(1, "sort", 3'000);
    ck_assert(!nodes.check.most("liar"));  // one user says so
    nodes.run_on_all(2, "solve", 6'000);
    ck_assert(nodes.check.most("liar") == 120);
    ck_assert(!nodes.check.most("a") && !nodes.check.most("b"));
    ck_assert_int_eq(nodes.changes, 1);
    // It claims what it gives: nothing is held against it.
    nodes.claims["liar"] = 120;
    nodes.run("liar", 2, "solve", 6'000);
    ck_assert(!nodes.check.most("liar"));
    // And the claim of before does not come back by being made again.
    nodes.claims["liar"] = 200;
    nodes.run("liar", 2, "solve", 6'000);
    ck_assert(nodes.check.most("liar") == 120);
    nodes.check.forget("liar");
    ck_assert(!nodes.check.most("liar"));
}
END_TEST

START_TEST(nodes_that_give_what_they_claim_are_left_alone) {
    Nodes nodes = honest_and_liar(300, 270);  // within the tolerance
    for (const uint32_t uid : {1U, 2U, 3U})
        for (const char* program : {"sort", "solve"}) nodes.run_on_all(uid, program, 9'000);
    for (const auto& [name, speed] : nodes.speeds) ck_assert(!nodes.check.most(name));
}
END_TEST

// It lends half of itself by day, and says so.
START_TEST(a_node_that_says_less_while_it_gives_less_is_left_alone) {
    Nodes nodes = honest_and_liar(200, 200);
    for (int i = 0; i < 12; ++i) {
        nodes.claims["liar"] = nodes.speeds["liar"] = i % 3 == 0 ? 200 : 100;
        for (const uint32_t uid : {1U, 2U}) nodes.run_on_all(uid, "sort", 6'000, 1);
        ck_assert(!nodes.check.most("liar"));
    }
    ck_assert_int_eq(nodes.changes, 0);
}
END_TEST

// It takes as long everywhere, so it is "slow" where the speed is greatest.
START_TEST(a_program_that_does_not_compute_says_nothing) {
    Nodes nodes = honest_and_liar(400, 400);
    for (const uint32_t uid : {1U, 2U, 3U})
        for (int i = 0; i < 5; ++i)
            for (const auto& [name, speed] : nodes.speeds)
                nodes.run(name, uid, "sleep", 60 * speed / 100, 1);
    ck_assert(!nodes.check.most("liar"));
    // A node that says of computing programs that they did not compute is found all the same.
    nodes = honest_and_liar(400, 100);
    for (const uint32_t uid : {1U, 2U})
        for (int i = 0; i < 4; ++i)
            for (const auto& [name, speed] : nodes.speeds)
                nodes.run(name, uid, "sort", 3'000, name == "liar" ? 0 : 100);
    ck_assert(nodes.check.most("liar") == 200);
}
END_TEST

// The runs on the node happen to be longer than those elsewhere.
START_TEST(a_program_whose_runs_differ_says_nothing) {
    Nodes nodes = honest_and_liar(100, 100);
    for (const uint32_t uid : {1U, 2U, 3U})
        for (int i = 0; i < 9; ++i) {
            nodes.run("a", uid, "any", 1'000 + i * 200);
            nodes.run("b", uid, "any", 1'000 + i * 300);
            nodes.run("liar", uid, "any", 9'000);
        }
    ck_assert(!nodes.check.most("liar"));
}
END_TEST

// Programs that look where they are, and take their time on one node: it is their user's word.
START_TEST(users_do_not_lie_a_node_down) {
    Nodes nodes;
    for (const char* name : {"a", "b", "c"}) nodes.add(name, 100, 100);
    const auto lie = [&](uint32_t uid, const std::string& program) {
        for (int i = 0; i < 9; ++i) {
            nodes.run("a", uid, program, 300);
            nodes.run("b", uid, program, 300);
            nodes.run("c", uid, program, 30'000);
        }
    };
    // One user with as many programs as he likes, alone and beside one honest user.
    for (int i = 0; i < 200; ++i) lie(666, "spin " + std::to_string(i));
    ck_assert(!nodes.check.most("c"));
    nodes.run_on_all(1, "sort", 3'000);
    lie(666, "spin once more");
    ck_assert(!nodes.check.most("c"));
    // Two of five; then most of them, who get it down to half.
    for (const uint32_t uid : {2U, 3U}) nodes.run_on_all(uid, "sort", 3'000);
    lie(667, "spin");
    ck_assert(!nodes.check.most("c"));
    for (const uint32_t uid : {668U, 669U, 670U}) lie(uid, "spin");
    ck_assert(nodes.check.most("c") == 50);
}
END_TEST

// Another node that claims less than it has makes the same program "more work" nowhere.
START_TEST(one_other_node_that_claims_little_does_not_make_a_node_slow) {
    Nodes nodes;
    nodes.add("a", 100, 100);
    nodes.add("modest", 20, 100);
    nodes.add("c", 100, 100);
    for (const uint32_t uid : {1U, 2U, 3U}) nodes.run_on_all(uid, "sort", 3'000);
    ck_assert(!nodes.check.most("a") && !nodes.check.most("c"));
    ck_assert(!nodes.check.most("modest"));
}
END_TEST

START_TEST(what_is_kept_is_bounded_and_a_user_pushes_out_his_own) {
    Nodes nodes = honest_and_liar(200, 100);
    nodes.run_on_all(1, "sort", 3'000);
    for (int i = 0; i < 2'000; ++i) nodes.run("a", 666, "p" + std::to_string(i), 100);
    nodes.run_on_all(2, "sort", 3'000);
    ck_assert(nodes.check.most("liar") == 100);
}
END_TEST

UNIT_SUITE(speed_check, a_node_that_gives_less_than_it_claims_counts_for_what_it_gives,
           nodes_that_give_what_they_claim_are_left_alone,
           a_node_that_says_less_while_it_gives_less_is_left_alone,
           a_program_that_does_not_compute_says_nothing, a_program_whose_runs_differ_says_nothing,
           users_do_not_lie_a_node_down,
           one_other_node_that_claims_little_does_not_make_a_node_slow,
           what_is_kept_is_bounded_and_a_user_pushes_out_his_own);

}  // namespace souk::unit
