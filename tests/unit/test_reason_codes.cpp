// SPDX-License-Identifier: GPL-2.0-or-later
// Each reason has a market in which it is said: codes that other tests of the Market reach by their
// words alone, or not at all.
#include <algorithm>
#include <set>

#include "kernel/base/json.hpp"
#include "tests/unit/market_world.hpp"

using namespace souk;
using namespace souk::market;

namespace {

constexpr Nanos s(int64_t v) { return Nanos::from_s(v); }

// A market, and every code that was said of any of its jobs.
struct Told : World {
    std::set<std::string> codes;

    explicit Told(const char* algorithm = "greedy_migration") : World(with(algorithm)) {
        after_step = [this] { look(); };
    }
    static MarketOptions with(const char* algorithm) {
        MarketOptions o;
        o.solver.algorithm = algorithm;
        return o;
    }
    void look() {
        for (const auto& [id, home_job] : jobs)
            if (const Job* job = market->find(id))
                for (const Reason& r : {market->reason(*job), job->reason, job->order_reason})
                    codes.insert(std::string(to_string(r.code)));
    }
    std::string of(const JobId& id) const {
        return std::string(to_string(market->reason(*market->find(id)).code));
    }
    std::string of(const char* node) const {
        return std::string(to_string(market->reason(*market->find_node(node), now).code));
    }
    void has(const char* code) const {
        std::string all;
        for (const std::string& c : codes) all += c + " ";
        ck_assert_msg(codes.contains(code), "no %s: %s", code, all.c_str());
    }
};

}  // namespace

START_TEST(an_operators_word_has_a_code_while_it_lasts_and_when_it_is_lost) {
    Told w;
    three_nodes(w);
    const JobId a = w.submit("n3", 100);
    w.run_for(s(1));
    ck_assert(w.market->move(a, "n3", false, 0).has_value());
    w.run_for(s(5));
    w.has("moved_by_hand");
    ck_assert(w.market->freeze(a, true, 0).has_value());
    w.run_for(s(1));
    ck_assert(w.market->thaw(a, "n3", false, 0).has_value());
    w.look();
    w.run_for(s(5));
    w.has("thawed_by_hand");
    ck_assert(w.market->move(a, "n2", true, 0).has_value());
    w.run_for(s(2));
    w.has("pinned_frozen");
    w.disconnect("n2");
    w.run_for(s(100));
    ck_assert(w.market->write_off("n2", root_uid).has_value());
    w.look();
    w.has("hold_lost");
}
END_TEST

START_TEST(a_cancel_has_a_code_with_its_home_and_without) {
    Told w;
    three_nodes(w);
    const JobId a = w.submit("n3", 100), b = w.submit("n2", 90);
    w.run_for(s(1));
    ck_assert(w.market->cancel(a, 0).has_value());
    ck_assert_text(w.of(a), "cancelling");
    w.disconnect("n2");
    ck_assert(w.market->cancel(b, 0).has_value());
    ck_assert_text(w.of(b), "cancel_later");
}
END_TEST

START_TEST(what_is_not_connected_or_not_heard_has_a_code) {
    Told lies;
    three_nodes(lies);
    const JobId a = lies.submit("n3", 100);
    lies.run_for(s(1));
    ck_assert(lies.market->freeze(a, true, 0).has_value());
    lies.run_for(s(1));
    lies.disconnect("n1");
    ck_assert_text(lies.of(a), "image_away");
    ck_assert_text(lies.of("n1"), "node_disconnected");
    lies.run_for(s(1'000));
    ck_assert_text(lies.of("n1"), "node_lost");
    lies.restart();
    ck_assert(lies.market->agent_connected("n3", "10.0.0.1:1", lies.now).has_value());
    ck_assert_text(lies.of(a), "home_silent");

    Told stands;
    three_nodes(stands);
    const JobId b = stands.submit("n3", 100);
    stands.run_for(s(1));
    stands.becomes_immovable(b, "it holds something");
    ProviderReport p = stands.providers["n1"];
    p.on_market = false;
    stands.set_provider(p);
    stands.run_for(s(5));
    ck_assert_text(stands.of(b), "stopped_here");
    stands.disconnect("n1");
    ck_assert_text(stands.of(b), "stands_away");

    Told keeps;
    three_nodes(keeps);
    const JobId c = keeps.submit("n3", 100);
    keeps.run_for(s(1));
    p = keeps.providers["n1"];
    p.cannot = "no CRIU";
    keeps.set_provider(p);
    ck_assert_text(keeps.of(c), "node_keeps");
    keeps.paused(c, {CauseCode::owner_uses, "its owner uses it"});
    keeps.run_for(s(60));
    const Money cost = keeps.cost(c);
    ck_assert_text(keeps.of(c), "paused_by_owner");
    ck_assert_text(keeps.comment(c), "is stopped on n1 for now: its owner uses it");
    keeps.run_for(s(60));
    ck_assert(keeps.cost(c) == cost);
    keeps.paused(c, {});
    keeps.run_for(s(60));
    ck_assert(keeps.cost(c) > cost);
    ck_assert_text(keeps.of("n1"), "node_unable");
}
END_TEST

START_TEST(who_runs_on_a_node_whose_time_frame_ends_soon_is_told_when) {
    Told w;
    w.add_node("n1", 100, 1);
    w.run_for(s(4));
    const JobId a = w.submit("n1", 50);
    w.run_for(s(1));
    ck_assert_text(w.of(a), "placed");
    ProviderReport p = w.providers["n1"];
    p.opens = s(1'795'000'000);
    w.set_provider(p);
    w.run_for(s(2));
    ck_assert_text(w.of(a), "closes_soon");
    ck_assert_text(w.comment(a),
                   "n1 leaves the market at 2026-11-18 11:06 UTC; then it moves or is "
                   "frozen");
    p.opens = {};
    w.set_provider(p);
    w.run_for(s(2));
    ck_assert_text(w.of(a), "placed");
}
END_TEST

START_TEST(a_move_that_fails_leaves_its_code_and_that_of_its_cause) {
    Told w;
    w.add_node("n1", 100, 1);
    w.run_for(s(4));
    const JobId a = w.submit("n1", 50);
    w.run_for(s(1));
    w.refuse = [](const Order& o) -> std::optional<OrderFailed> {
        return OrderFailed{o.id, o.seq, "n1", {CauseCode::did_not_stop, "a process waits"}};
    };
    w.add_node("n2", 300, 1);
    w.run_for(s(1));
    w.jobs.at(a).report.image_stays = {CauseCode::image_stays, "its image stays on n1 for now"};
    w.tell(w.jobs.at(a));
    const Job* job = w.market->find(a);
    ck_assert_text(job->failed->last, "the move to n2 failed: a process waits");
    w.has("order_failed");
    const auto all = w.market->reasons(*job, w.now);
    const auto of_failure = std::find_if(all.begin(), all.end(), [](const Reason& r) {
        return r.code == ReasonCode::order_failed || r.code == ReasonCode::cannot_leave;
    });
    ck_assert(of_failure != all.end());
    ck_assert(std::any_of(all.begin(), all.end(), [](const Reason& r) {
        return r.code == ReasonCode::image_waits && r.text() == "its image stays on n1 for now";
    }));
    JsonWriter j;
    j.begin_object();
    write_reason(j, *of_failure);
    const std::string text = j.end_object().take();
    ck_assert_msg(text.find(R"("cause_code":"did_not_stop")") != text.npos, "%s", text.c_str());
}
END_TEST

START_TEST(other_algorithms_say_why_they_moved_froze_or_placed_a_job) {
    Told share("proportional_share");
    share.add_node("n1", 100, 1);
    share.run_for(s(4));
    share.submit_as(1, "n1", 50);
    share.submit_as(2, "n1", 50);
    share.run_for(s(600));
    share.has("turn_of_other");

    Told level("balance");
    level.add_node("n1", 100, 1, 4);
    level.add_node("n2", 100, 1, 4);
    level.run_for(s(4));
    std::vector<JobId> all;
    for (int i = 0; i < 4; ++i) all.push_back(level.submit("n1", 50));
    level.run_for(s(60));
    level.has("lowest_load");
    const std::string left = level.where(all[0]);
    for (const JobId& id : all)
        if (level.where(id) != left) level.end(level.jobs.at(id));
    level.run_for(s(600));
    level.has("balanced");
}
END_TEST

START_TEST(jobs_in_each_others_way_say_so) {
    Told limited;
    limited.add_node("n1", 100, 1);
    limited.add_node("n2", 300, 1);
    limited.run_for(s(4));
    const UserLimits one{{}, 1, {}};
    ck_assert(limited.market->set_limits(1, "alice", one, 0, limited.now).has_value());
    limited.submit_as(1, "n1", 50);
    limited.run_for(s(5));
    limited.submit_as(1, "n1", 90);
    limited.run_for(s(60));
    limited.has("room_of_user");

    Told swap;
    swap.add_node("n1", 300, 1);
    swap.add_node("n2", 100, 1);
    swap.run_for(s(4));
    const JobId a = swap.submit("n1", 50), b = swap.submit("n1", 40);
    swap.run_for(s(5));
    ck_assert_text(swap.where(a) + swap.where(b), "n1n2");
    World::HomeJob& job = swap.jobs.at(b);
    job.report.terms.max_price = Money::units(90);
    swap.tell(job);
    swap.run_for(s(60));
    ck_assert_text(swap.where(a) + swap.where(b), "n2n1");
    swap.has("makes_room");
}
END_TEST

UNIT_SUITE(reason_codes, a_cancel_has_a_code_with_its_home_and_without,
           who_runs_on_a_node_whose_time_frame_ends_soon_is_told_when,
           a_move_that_fails_leaves_its_code_and_that_of_its_cause,
           an_operators_word_has_a_code_while_it_lasts_and_when_it_is_lost,
           jobs_in_each_others_way_say_so,
           other_algorithms_say_why_they_moved_froze_or_placed_a_job,
           what_is_not_connected_or_not_heard_has_a_code);
