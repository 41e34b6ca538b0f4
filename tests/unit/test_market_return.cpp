// SPDX-License-Identifier: GPL-2.0-or-later
// Market: restarts, homes and providers that are away, and finished jobs.
#include "tests/unit/market_world.hpp"

using namespace souk;
using namespace souk::market;

namespace {
constexpr Nanos ms(int64_t v) { return Nanos::from_ms(v); }
constexpr Nanos s(int64_t v) { return Nanos::from_s(v); }
}  // namespace

START_TEST(an_order_that_a_home_swallows_is_given_up_and_made_anew) {
    World w;
    w.add_node("n1", 100, 1);
    w.run_for(s(4));
    const JobId a = w.submit("n1", 100);
    Outputs out;
    w.market->solve(w.now, out);
    for (const StoreOp& op : out.store)
        if (const auto* meta = std::get_if<MetaRecord>(&op)) w.stored_meta = *meta;
    // it took the order, and nothing came of it
    w.jobs[a].report.order_seq = w.market->find(a)->record.order->seq;
    w.tell(w.jobs[a]);
    w.run_for(s(1));
    ck_assert_text(w.where(a), "waiting");
    w.run_for(s(5));
    ck_assert_text(w.where(a), "n1");
}
END_TEST

START_TEST(a_market_that_restarts_moves_nothing_and_starts_nothing_twice) {
    World w;
    three_nodes(w);
    const JobId a = w.submit("n1", 100), b = w.submit("n2", 90), c = w.submit("n2", 80),
                d = w.submit("n3", 70);
    w.run_for(s(1));
    const size_t given = w.orders.size();
    const uint64_t seq = w.orders.back().seq;
    w.restart();
    w.run_for(ms(500));
    for (const char* n : {"n3", "n1", "n2"}) {
        w.connect(n);
        w.run_for(ms(100));
    }
    ck_assert(!w.market->settling());  // before its time: everybody was back
    w.run_for(s(10));
    ck_assert_int_eq(w.orders.size(), given);
    ck_assert_text(w.where(a) + w.where(b) + w.where(c) + w.where(d), "n1n2n3waiting");
    const JobId e = w.submit("n1", 200);
    w.run_for(s(1));
    ck_assert_text(w.where(e), "n1");
    ck_assert(w.orders.back().seq > seq);
}
END_TEST

START_TEST(a_restarted_market_waits_for_missing_nodes_only_so_long) {
    World w;
    three_nodes(w);
    const JobId a = w.submit("n1", 100), b = w.submit("n2", 90);
    w.run_for(s(1));
    w.restart();
    w.connect("n2");
    w.connect("n3");
    const JobId c = w.submit("n2", 300);
    w.run_for(s(2));
    ck_assert(w.market->settling());
    ck_assert_text(w.where(c), "waiting");
    w.run_for(s(2));
    // n1 is not there: its job is left in peace, and its place is not given away
    ck_assert_text(w.where(c), "n2");
    ck_assert_text(w.where(b), "n3");
    ck_assert_text(w.where(a), "n1");
    ck_assert_text(w.comment(a), "its home node n1 is not connected; it stays on n1");
}
END_TEST

START_TEST(a_lost_provider_keeps_its_guest_and_a_lost_home_keeps_its_jobs_running) {
    World w;
    three_nodes(w);
    const JobId a = w.submit("n3", 100);
    w.run_for(s(1));
    w.disconnect("n1");
    w.run_for(s(10));
    ck_assert_text(w.where(a), "n1");
    ck_assert_text(w.comment(a), "n1 is not connected; it stays there");
    ck_assert_text(w.market->provider_state(*w.market->find_node("n1"), w.now), "disconnected");
    w.run_for(s(60));
    ck_assert_text(w.market->provider_state(*w.market->find_node("n1"), w.now), "lost");
    w.connect("n1");
    w.disconnect("n3");
    const JobId b = w.submit("n2", 300);
    w.run_for(s(10));
    ck_assert_text(w.where(a), "n1");
    ck_assert_text(w.where(b), "n2");
    w.connect("n3");
    w.run_for(s(1));
    ck_assert_text(w.where(b), "n1");
    ck_assert_text(w.where(a), "n2");
}
END_TEST

START_TEST(a_job_that_its_home_has_forgotten_is_finished_after_a_while) {
    World w;
    three_nodes(w);
    const JobId a = w.submit("n3", 100);
    w.run_for(s(1));
    w.disconnect("n3");
    auto forgotten = w.jobs.extract(a);
    w.connect("n3");
    w.run_for(s(30));
    ck_assert_int_eq(static_cast<int>(w.market->find(a)->phase()),
                     static_cast<int>(JobPhase::running));
    w.jobs.insert(std::move(forgotten));  // where its settled note goes
    w.run_for(s(31));
    ck_assert_int_eq(static_cast<int>(w.market->find(a)->phase()),
                     static_cast<int>(JobPhase::finished));
    ck_assert_text(w.comment(a), "its home node n3 no longer knows it");
}
END_TEST

START_TEST(the_newest_finished_jobs_are_known_and_all_are_stored) {
    MarketOptions options;
    options.finished_recent = 3;
    World w(options);
    w.add_node("n1", 100, 1);
    w.run_for(s(4));
    for (int i = 0; i < 8; ++i) {
        const JobId id = w.submit("n1", 10, s(1));
        w.run_for(s(2));
        ck_assert(w.jobs[id].settled);
    }
    ck_assert_int_eq(w.market->jobs().size(), 3);
    ck_assert_int_eq(w.stored_jobs.size(), 8);
    for (const auto& [id, record] : w.stored_jobs)
        ck_assert(record.finish_seq == id.seq && record.ended.ns > 0);
    const Totals t = w.market->totals(w.now);
    ck_assert_int_eq(t.paid.micro, t.earned.micro);
    ck_assert(t.paid.micro > 0);
}
END_TEST

START_TEST(a_home_that_asks_again_about_a_finished_job_hears_what_it_cost) {
    MarketOptions options;
    options.finished_recent = 2;
    World w(options);
    w.add_node("n1", 100, 1);
    w.run_for(s(4));
    const JobId first = w.submit("n1", 10, s(100));
    w.run_for(s(110));
    for (int i = 0; i < 4; ++i) {
        w.submit("n1", 10, s(1));
        w.run_for(s(2));
    }
    ck_assert(!w.market->find(first) && w.jobs[first].settled);
    const Money cost = w.jobs[first].note.cost;
    ck_assert(cost.micro > 0);
    const Totals before = w.market->totals(w.now);
    const size_t receipts = w.receipts.size();
    w.jobs[first].settled = false;
    w.jobs[first].note = {};
    w.market->recall(w.stored_jobs.at(first));
    w.market->recall(w.stored_jobs.at(first));  // twice is as once
    w.tell(w.jobs[first]);
    w.run_for(s(1));
    ck_assert(w.jobs[first].settled && w.jobs[first].note.cost == cost);
    ck_assert(!w.market->find(first));
    ck_assert_int_eq(w.market->jobs().size(), 2);
    const Totals after = w.market->totals(w.now);
    ck_assert(after.paid == before.paid && after.earned == before.earned &&
              w.receipts.size() == receipts);
    // A market that starts knows none of them, and neither sum has changed.
    auto stored = std::exchange(w.stored_jobs, {});
    w.restart();
    ck_assert(w.market->jobs().empty());
    ck_assert(w.market->totals(w.now).paid == before.paid);
    ck_assert_text(w.market->audit(), "");
}
END_TEST

START_TEST(records_from_before_finished_jobs_were_kept_apart_count_once) {
    World w;
    w.add_node("n1", 100, 1);
    w.run_for(s(4));
    for (int i = 0; i < 3; ++i) {
        w.submit("n1", 10, s(50));
        w.run_for(s(60));
    }
    const Money paid = w.market->totals(w.now).paid;
    w.stored_meta.retired = {};  // of the erased ones alone
    w.stored_meta.finished_retired = false;
    w.restart();
    w.connect("n1");
    w.run_for(s(5));
    ck_assert(w.market->totals(w.now).paid == paid);
    ck_assert(w.stored_meta.finished_retired && w.stored_meta.retired == paid);
    w.restart();
    ck_assert(w.market->totals(w.now).paid == paid);
}
END_TEST

UNIT_SUITE(market_return, a_home_that_asks_again_about_a_finished_job_hears_what_it_cost,
           records_from_before_finished_jobs_were_kept_apart_count_once,
           an_order_that_a_home_swallows_is_given_up_and_made_anew,
           a_market_that_restarts_moves_nothing_and_starts_nothing_twice,
           a_restarted_market_waits_for_missing_nodes_only_so_long,
           a_lost_provider_keeps_its_guest_and_a_lost_home_keeps_its_jobs_running,
           a_job_that_its_home_has_forgotten_is_finished_after_a_while,
           the_newest_finished_jobs_are_known_and_all_are_stored);
