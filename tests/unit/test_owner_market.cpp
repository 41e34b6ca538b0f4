// SPDX-License-Identifier: GPL-2.0-or-later
// The market, and jobs that nothing can move.
#include "market/core/market.hpp"
#include "tests/unit/market_world.hpp"

using namespace souk;

namespace {
constexpr const char* queue = "has a POSIX message queue open";
constexpr Nanos s(int64_t v) { return Nanos::from_s(v); }
}  // namespace

START_TEST(a_better_bid_stops_an_immovable_job_where_it_is_and_it_goes_on_when_that_has_ended) {
    market::World w;
    w.add_node("n1", 100, 1);
    w.add_node("n2", 300, 1000);  // fast, and too dear for it
    w.run_for(s(4));
    const JobId low = w.submit("n1", 2);
    w.run_for(s(1));
    w.becomes_immovable(low, queue);
    w.run_for(s(10));
    ck_assert_text(w.where(low), "n1");
    const JobId high = w.submit("n1", 500, s(20));
    w.run_for(s(1));
    ck_assert_text(w.where(high), "n1");
    ck_assert_text(w.comment(low), std::string("stopped on n1 (") + queue +
                                       "); displaced by job n1.2 at 500; 501 would win it back");
    ck_assert_int_eq(w.orders.size(), 3);  // run, suspend, run: no flapping
    const Money cost = w.cost(low);
    w.run_for(s(10));
    ck_assert(w.cost(low) == cost);
    ck_assert_int_eq(w.orders.size(), 3);
    w.run_for(s(20));
    ck_assert_text(w.where(low), "n1");
    ck_assert_int_eq(w.orders.size(), 4);
}
END_TEST

START_TEST(an_immovable_job_is_not_planned_to_move_and_who_bids_more_goes_elsewhere) {
    market::World w;
    w.add_node("n1", 100, 1);
    w.run_for(s(4));
    const JobId low = w.submit("n1", 50);
    w.run_for(s(1));
    w.becomes_immovable(low, queue);
    w.add_node("n2", 300, 1);  // it would go there
    w.run_for(s(5));
    ck_assert_text(w.where(low), "n1");
    const JobId high = w.submit("n1", 60);
    w.run_for(s(2));
    ck_assert_text(w.where(high), "n2");
    ck_assert_text(w.where(low), "n1");
    // A lesser one does not throw it out of where it cannot leave.
    const JobId least = w.submit("n1", 40);
    w.run_for(s(2));
    ck_assert_text(w.where(least), "waiting");
    ck_assert_text(w.where(low), "n1");
    ck_assert_text(w.comment(low), w.market->find(low)->reason.text());
    ck_assert_int_eq(w.jobs[low].report.stats.migrations, 0);
}
END_TEST

START_TEST(the_memory_of_an_immovable_job_is_nobodys_and_who_waits_for_it_is_told) {
    market::World w;
    w.add_node("n1", 100, 1, 2, 1000);
    w.run_for(s(4));
    const JobId low = w.submit("n1", 2, Nanos::never(), 1, 700);
    w.run_for(s(1));
    w.becomes_immovable(low, queue);
    const JobId big = w.submit("n1", 500, Nanos::never(), 1, 600);
    w.run_for(s(10));
    ck_assert_text(w.where(big), "waiting");
    ck_assert_text(w.comment(big),
                   "waits for memory on n1: job n1.1 cannot move, and holds it there");
    ck_assert_text(w.where(low), "n1");  // stopped it would give nobody anything
    const JobId small = w.submit("n1", 500, s(30), 2, 300);
    w.run_for(s(2));
    ck_assert_text(w.where(small), "n1");
    ck_assert_text(w.where(low), "frozen");
    w.run_for(s(40));
    ck_assert_text(w.where(low), "n1");
    ck_assert_int_eq(w.orders.size(), 4);
}
END_TEST

START_TEST(an_owner_who_leaves_has_immovable_jobs_stopped_and_going_on_when_he_is_back) {
    market::World w;
    w.add_node("n1", 100, 1);
    w.add_node("n2", 100, 1);
    w.run_for(s(4));
    const JobId a = w.submit("n1", 50);
    w.run_for(s(1));
    const NodeName at = w.where(a);
    w.becomes_immovable(a, queue);
    ProviderReport p = w.providers[at];
    p.on_market = false;
    w.set_provider(p);
    w.run_for(s(5));
    ck_assert(w.jobs[a].report.in_place);
    ck_assert_text(w.comment(a), "stopped on " + at + " (" + queue + "); goes on when " + at +
                                     " takes jobs again");
    const auto orders = w.orders.size();
    w.restart();  // and a market that was started again knows it
    w.connect("n1");
    w.connect("n2");
    w.run_for(s(10));
    ck_assert_int_eq(w.orders.size(), orders);
    p.on_market = true;
    w.set_provider(p);
    w.run_for(s(5));
    ck_assert_text(w.where(a), at);
}
END_TEST

START_TEST(a_freeze_by_the_operator_that_fails_does_not_show_as_done) {
    market::World w;
    w.add_node("n1", 100, 1);
    w.run_for(s(4));
    const JobId id = w.submit("n1", 50);
    w.run_for(s(1));
    w.refuse = [](const Order& o) -> std::optional<OrderFailed> {
        if (o.kind != Order::Kind::suspend) return std::nullopt;
        return OrderFailed{o.id, o.seq, "n1", "no room"};
    };
    bool tried_again = false;
    w.after_step = [&] {
        if (w.phase(id) == JobPhase::frozen) return;
        ck_assert_msg(!w.comment(id).starts_with("held frozen"), "%s", w.comment(id).c_str());
        tried_again = tried_again ||
                      w.comment(id) == "runs on n1, and is to be frozen and held by the operator";
    };
    ck_assert(w.market->freeze(id, true, 0).has_value());
    w.run_for(s(10));
    ck_assert(tried_again);
    ck_assert_text(w.where(id), "n1");
    w.refuse = nullptr;
    w.after_step = nullptr;
    w.run_for(s(600));
    ck_assert_text(w.comment(id), "held frozen by the operator");
}
END_TEST

UNIT_SUITE(owner_market, a_freeze_by_the_operator_that_fails_does_not_show_as_done,
           a_better_bid_stops_an_immovable_job_where_it_is_and_it_goes_on_when_that_has_ended,
           an_immovable_job_is_not_planned_to_move_and_who_bids_more_goes_elsewhere,
           the_memory_of_an_immovable_job_is_nobodys_and_who_waits_for_it_is_told,
           an_owner_who_leaves_has_immovable_jobs_stopped_and_going_on_when_he_is_back);
