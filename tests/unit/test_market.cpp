// SPDX-License-Identifier: GPL-2.0-or-later
// The market machine against homes that obey it (market_world.hpp): decisions, orders, failures,
// restarts, operators.
#include <algorithm>

#include "tests/unit/market_world.hpp"

using namespace souk;
using namespace souk::market;

namespace {
constexpr Nanos ms(int64_t v) { return Nanos::from_ms(v); }
constexpr Nanos s(int64_t v) { return Nanos::from_s(v); }

OrderFailed failed(const Order& o, const NodeName& node, const char* why) {
    return {o.id, o.seq, node, why};
}
}  // namespace

START_TEST(a_job_of_200_suspends_one_of_100_which_goes_on_when_it_ends) {
    World w;
    w.add_node("n1", 100, 1);
    w.run_for(s(4));
    const JobId low = w.submit("n1", 100);
    w.run_for(s(1));
    ck_assert_text(w.where(low), "n1");
    const JobId high = w.submit("n1", 200, s(5));
    w.run_for(s(1));
    ck_assert_text(w.where(high), "n1");
    ck_assert_text(w.where(low), "frozen");
    ck_assert_text(w.comment(low), "displaced by job n1.2 at 200; 201 would win it back");
    ck_assert_text(w.jobs[low].note.comment, w.comment(low));
    w.run_for(s(6));
    ck_assert_text(w.where(high), "finished");
    ck_assert(w.jobs[high].settled);
    ck_assert_text(w.where(low), "n1");
    ck_assert_int_eq(w.orders.size(), 4);  // run, suspend, run, run
}
END_TEST

START_TEST(a_better_bid_moves_the_others_down_and_its_end_moves_them_up) {
    World w;
    three_nodes(w);
    const JobId a = w.submit("n3", 100), b = w.submit("n3", 90);
    w.run_for(s(1));
    ck_assert_text(w.where(a), "n1");
    ck_assert_text(w.where(b), "n2");
    const JobId c = w.submit("n2", 200, s(10));
    w.run_for(s(2));
    ck_assert_text(w.where(c), "n1");
    ck_assert_text(w.where(a), "n2");
    ck_assert_text(w.where(b), "n3");
    ck_assert_int_eq(w.jobs[a].report.stats.freezes, 0);
    w.run_for(s(10));
    ck_assert_text(w.where(a), "n1");
    ck_assert_text(w.where(b), "n2");
}
END_TEST

START_TEST(a_report_from_before_a_freeze_does_not_hide_who_displaced_the_job) {
    World w;
    w.add_node("n1", 100, 1);
    w.run_for(s(4));
    const JobId low = w.submit("n1", 100);
    w.run_for(s(1));
    const JobReport earlier = w.jobs[low].report;
    ck_assert(earlier.phase == JobPhase::running);
    w.submit("n1", 200);
    w.run_for(ms(1));
    ck_assert(w.phase(low) == JobPhase::freezing);
    ck_assert(w.market->report("n1", earlier, w.now).has_value());  // crossed the order
    w.run_for(s(5));
    ck_assert_text(w.where(low), "frozen");
    ck_assert_text(w.comment(low), "displaced by job n1.2 at 200; 201 would win it back");
}
END_TEST

START_TEST(a_decision_is_made_in_the_very_step_and_waits_only_for_who_must_leave) {
    World w;
    three_nodes(w);
    const size_t before = w.orders.size();
    const JobId a = w.submit("n1", 10);
    w.decide();
    ck_assert_int_eq(w.orders.size(), before + 1);
    w.run_for(s(1));
    const JobId b = w.submit("n1", 20);
    w.decide();  // the first one leaves n1; the new one waits for that
    ck_assert_int_eq(w.orders.size(), before + 2);
    ck_assert_text(w.orders.back().node, "n2");
    w.run_for(ms(10));
    ck_assert_text(w.where(a), "n2");
    ck_assert_text(w.orders.back().node, "n1");
    ck_assert_text(w.orders.back().id.text(), b.text());
}
END_TEST

START_TEST(two_jobs_that_want_each_others_places_go_by_way_of_a_freeze) {
    World w;
    w.add_node("n1", 300, 1);
    w.add_node("n2", 200, 1);
    w.run_for(s(4));
    const JobId a = w.submit("n1", 100), b = w.submit("n1", 50);
    w.run_for(s(1));
    ck_assert_text(w.where(a), "n1");
    // srun -J: now it is worth more than the other
    w.jobs[b].report.terms.max_price = Money::units(400);
    w.tell(w.jobs[b]);
    w.run_for(s(1));
    ck_assert_text(w.where(b), "n1");
    ck_assert_text(w.where(a), "n2");
    ck_assert_int_eq(w.jobs[a].report.stats.freezes, 1);
    ck_assert_int_eq(w.jobs[b].report.stats.freezes, 0);
}
END_TEST

START_TEST(an_owner_who_leaves_is_rid_of_his_guest_and_gets_it_back) {
    World w;
    three_nodes(w);
    const JobId a = w.submit("n3", 100);
    w.run_for(s(1));
    ProviderReport p = w.providers["n1"];
    p.on_market = false;
    w.set_provider(p);
    w.run_for(s(1));
    ck_assert_text(w.where(a), "n2");
    ck_assert_text(w.market->provider_state(*w.market->find_node("n1"), w.now), "off");
    p.on_market = true;
    w.set_provider(p);
    w.run_for(s(1));
    ck_assert_text(w.where(a), "n1");
}
END_TEST

START_TEST(a_job_that_can_never_be_placed_waits_and_says_exactly_why) {
    World w;
    w.add_node("n1", 100, 10, 2, 1000);
    w.run_for(s(4));
    const JobId big = w.submit("n1", 50, Nanos::never(), 1, 5000),
                wide = w.submit("n1", 50, Nanos::never(), 8);
    const JobId poor = w.submit("n1", 5);
    w.run_for(s(2));
    ck_assert_text(w.comment(big), "needs 5000 MB; no provider offers more than 1000");
    ck_assert_text(w.comment(wide), "needs 8 CPUs; no provider has more than 2");
    ck_assert_text(w.comment(poor),
                   "its price 5 is below every reservation price; 10 is the least");
    ck_assert_text(w.jobs[big].note.comment, "needs 5000 MB; no provider offers more than 1000");
    w.providers["n1"].on_market = false;
    w.set_provider(w.providers["n1"]);
    w.run_for(s(2));
    ck_assert_text(w.comment(big), "no provider is on the market");
    ck_assert_int_eq(w.orders.size(), 0);
}
END_TEST

START_TEST(an_outbid_job_is_told_what_would_win) {
    World w;
    w.add_node("n1", 100, 1);
    w.run_for(s(4));
    w.submit("n1", 100);
    w.run_for(s(1));
    const JobId b = w.submit_as(2000, "n1", 60);
    w.run_for(s(2));
    ck_assert_text(w.where(b), "waiting");
    ck_assert_text(w.jobs[b].note.comment, "outbid; 101 would win a place");
}
END_TEST

START_TEST(a_job_behind_those_of_its_own_user_is_told_so) {
    World w;
    w.add_node("n1", 100, 1);
    w.run_for(s(4));
    w.submit("n1", 40);
    w.run_for(s(1));
    const JobId b = w.submit("n1", 40);
    w.run_for(s(2));
    ck_assert_text(w.jobs[b].note.comment,
                   "outbid by jobs of its own user, u1000; 41 would win a place");
    const JobId other = w.submit_as(2000, "n1", 30);
    w.run_for(s(2));
    ck_assert_text(w.jobs[other].note.comment, "outbid; 41 would win a place");
}
END_TEST

// An array of more jobs than nodes: those that wait are told so from the moment on at which the
// others were ordered to start, and whatever else their user runs at other bids.
START_TEST(elements_that_wait_are_never_told_to_outbid_their_siblings_as_if_they_were_others) {
    for (const int32_t cpus : {1, 2}) {
        World w;
        w.add_node("n1", 100, 1, 40, 10'000);
        w.run_for(s(4));
        std::vector<JobId> all;
        for (int i = 0; i < 20; ++i) all.push_back(w.submit("n1", 30));
        w.run_for(s(1));
        for (int i = 0; i < 30 / cpus; ++i) all.push_back(w.submit("n1", 20, Nanos::never(), cpus));
        for (int step = 0; step < 40; ++step) {
            w.run_for(ms(50));
            for (const JobId& id : all)
                ck_assert_msg(!w.jobs[id].note.comment.starts_with("outbid;"), "%s: %s",
                              id.text().c_str(), w.jobs[id].note.comment.c_str());
        }
        int told = 0;
        for (const JobId& id : all)
            told += w.jobs[id].note.comment.starts_with("outbid by jobs of its own user");
        ck_assert_int_ge(told, 5);
    }
}
END_TEST

START_TEST(the_prices_of_a_day_ago_are_told_only_by_a_market_that_had_them) {
    World w;
    w.add_node("n1", 100, 1);
    w.run_for(s(4));
    w.submit("n1", 100);
    w.run_for(s(130));
    const JobId b = w.submit_as(2000, "n1", 60);
    w.run_for(s(2));
    const auto tells = [&] {
        const auto all = w.market->reasons(*w.market->find(b), w.now);
        return std::ranges::any_of(
            all, [](const Reason& r) { return r.code == ReasonCode::by_yesterday; });
    };
    ck_assert(!tells());
    PriceRecord yesterday;
    yesterday.minutes = 1;
    yesterday.least = Money::units(50);
    for (const int64_t back : {1'445, 1'430}) {
        yesterday.minute = (w.now.ns + w.calendar.ns) / s(60).ns - back;
        w.market->load(yesterday);
    }
    ck_assert(tells());
}
END_TEST

START_TEST(a_full_disk_keeps_the_job_where_it_is_and_the_winner_gets_the_next_best_place) {
    World w;
    w.add_node("n1", 300, 1);
    w.add_node("n2", 100, 50);  // too dear for the first job
    w.run_for(s(4));
    const JobId a = w.submit("n1", 40);
    w.run_for(s(1));
    int refusals = 0;
    w.refuse = [&](const Order& o) -> std::optional<OrderFailed> {
        if (o.kind != Order::Kind::suspend) return std::nullopt;
        ++refusals;
        return failed(o, "n1", "No space left on device");
    };
    const JobId b = w.submit("n1", 200);
    w.run_for(ms(100));
    ck_assert_text(w.where(a), "n1");
    ck_assert_text(w.where(b), "n2");
    ck_assert_text(w.comment(a), "cannot leave n1: No space left on device; tried again later");
    w.run_for(s(60));
    ck_assert_int_ge(refusals, 4);
    ck_assert_int_le(refusals, 8);  // 1, 2, 4, 8 ... seconds apart
    w.refuse = nullptr;
    w.run_for(s(300));
    ck_assert_text(w.where(a), "frozen");
    ck_assert_text(w.where(b), "n1");
}
END_TEST

START_TEST(a_node_that_refuses_a_job_is_passed_over_and_tried_again_ever_more_rarely) {
    World w;
    three_nodes(w);
    int refusals = 0;
    w.refuse = [&](const Order& o) -> std::optional<OrderFailed> {
        if (o.node != "n1") return std::nullopt;
        ++refusals;
        return failed(o, "n1", "no such file");
    };
    const JobId a = w.submit("n3", 100);
    w.run_for(ms(500));
    ck_assert_text(w.where(a), "n2");
    w.run_for(s(1'000));
    ck_assert_text(w.where(a), "n2");
    ck_assert_int_ge(refusals, 5);
    ck_assert_int_le(refusals, 14);
}
END_TEST

START_TEST(a_node_that_lacks_a_program_is_not_asked_again_and_a_job_that_none_can_run_is_given_up) {
    World w;
    three_nodes(w);
    w.run_for(s(4));
    std::set<NodeName> lacking = {"n1"};
    std::map<JobId, int> asked;
    w.lacks = [&](const Order& o) {
        return o.kind == Order::Kind::run && lacking.contains(o.node);
    };
    w.refuse = [&](const Order& o) -> std::optional<OrderFailed> {
        if (!w.lacks(o)) return std::nullopt;
        ++asked[o.id];
        return failed(o, o.node, "no such file");
    };
    const JobId a = w.submit("n1", 40);
    w.run_for(s(1));
    ck_assert_text(w.where(a), "n2");
    w.run_for(s(600));
    ck_assert_text(w.where(a), "n2");
    ck_assert_int_eq(asked[a], 1);

    lacking = {"n1", "n2", "n3"};
    const JobId b = w.submit("n1", 90);
    w.run_for(s(1));
    ck_assert(w.jobs.at(b).report.phase == JobPhase::finished);
    ck_assert_int_eq(asked[b], 3);

    // One that is away is waited for some minutes; one that is only off the market for as long as
    // it takes.
    lacking = {"n1", "n3"};
    ProviderReport off = w.providers["n2"];
    off.on_market = false;
    w.set_provider(off);
    const JobId c = w.submit("n1", 95);
    w.run_for(s(30));
    ck_assert(w.jobs.at(c).report.phase == JobPhase::waiting);
    ck_assert_text(w.comment(c), "waits for a node that has its program: n1, n3 cannot execute it");
    w.disconnect("n2");
    w.run_for(s(200));
    // its daemon may just be started again
    ck_assert(w.jobs.at(c).report.phase == JobPhase::waiting);
    w.run_for(s(300));
    ck_assert(w.jobs.at(c).report.phase == JobPhase::finished);
}
END_TEST

START_TEST(nobody_is_placed_where_less_memory_is_free) {
    World w;
    w.add_node("n1", 300, 1, 4, 4000);
    w.add_node("n2", 100, 1, 4, 4000);
    w.run_for(s(4));
    ProviderReport p = w.providers["n1"];
    p.free_mb = 500;  // the owner's own programs have the rest
    w.set_provider(p);
    const JobId a = w.submit("n1", 100, Nanos::never(), 1, 2000),
                b = w.submit("n1", 100, Nanos::never(), 1, 400);
    w.run_for(s(1));
    ck_assert_text(w.where(a) + w.where(b), "n2n1");
}
END_TEST

START_TEST(an_agent_that_speaks_for_others_is_refused_and_changes_nothing) {
    World w;
    three_nodes(w);
    JobReport r;
    r.id = {"n2", 5};
    r.terms.max_price = Money::units(5);
    ck_assert_text(w.market->report("n1", r, w.now).error().message,
                   "node n1 reports job n2.5 of another home");
    ck_assert(!w.market->find({"n2", 5}));
    // On a node, and on none.
    r.id = {"n1", 5};
    for (const JobPhase phase : {JobPhase::starting, JobPhase::running, JobPhase::frozen,
                                 JobPhase::moving, JobPhase::thawing}) {
        r.phase = phase;
        ck_assert(!w.market->report("n1", r, w.now) && !w.market->find(r.id));
    }
    r.where = "n1";
    ck_assert(!w.market->report("n1", r, w.now));  // it goes, and to none
    ProviderReport p;
    p.node = "n2";
    ck_assert_text(w.market->report("n1", p, w.now).error().message,
                   "node n1 reports as provider n2");
    ck_assert_text(w.market->report("n8", p, w.now).error().message, "node n8 is not connected");
}
END_TEST

START_TEST(an_answer_from_outside_says_nothing_about_what_came_after_the_question) {
    World w;
    three_nodes(w);
    const JobId a = w.submit("n3", 100);
    w.run_for(s(1));
    w.market->set_external(true);
    const auto step = [&w] {
        Outputs out;
        w.market->solve(w.now, out);
        std::vector<Order> given;
        for (const Send& send : out.send)
            if (const auto* order = std::get_if<Order>(&send.message)) given.push_back(*order);
        return std::pair(out.ask_solver, given);
    };
    ck_assert(step().first);  // asked about a alone, which runs on n1
    const auto about_a = w.market->problem();
    ck_assert_int_eq(about_a.jobs.size(), 1);
    const JobId b = w.submit("n3", 200);
    ck_assert(!step().first);  // one question at a time
    const ProviderKey n2 = w.market->find_node("n2")->key;
    ck_assert(w.market->adopt({{about_a.jobs[0].key, n2}}, w.now).has_value());
    const auto [asked, given] = step();
    ck_assert(asked);  // about both
    ck_assert_int_eq(given.size(), 1);
    ck_assert_text(given[0].id.text() + " " + given[0].node, a.text() + " n2");
    const auto about_b = w.market->problem();
    ck_assert_int_eq(about_b.jobs.size(), 1);  // the other is on its way
    ck_assert(w.market->adopt({}, w.now).has_value());
    ck_assert(step().first);
    // it was not asked about that one
    ck_assert(!w.market->adopt({{about_a.jobs[0].key, n2}}, w.now).has_value());
    w.market->use_own();
    ck_assert(step().second.empty());  // n1 is still being left
    ck_assert_msg(w.comment(b).starts_with("waits for room on n1"), "%s", w.comment(b).c_str());
}
END_TEST

START_TEST(an_idle_market_asks_for_nothing_but_a_look_at_its_prices_each_minute) {
    World w;
    three_nodes(w);
    w.submit("n1", 100);
    w.run_for(s(5));
    const Nanos minute = s((w.now.ns / s(60).ns + 1) * 60);
    ck_assert(w.market->next_call() == minute);
    ProviderReport p = w.providers["n1"];
    p.load_permille = 500;
    p.free_mb -= 3;
    w.set_provider(p);
    ck_assert(w.market->next_call() == minute);
    w.now = minute;
    Outputs out;
    w.market->solve(w.now, out);
    ck_assert_uint_eq(out.store.size(), 1);
    ck_assert(std::holds_alternative<PriceRecord>(out.store[0]) && out.send.empty());
}
END_TEST

UNIT_SUITE(market, a_job_of_200_suspends_one_of_100_which_goes_on_when_it_ends,
           a_better_bid_moves_the_others_down_and_its_end_moves_them_up,
           a_report_from_before_a_freeze_does_not_hide_who_displaced_the_job,
           a_decision_is_made_in_the_very_step_and_waits_only_for_who_must_leave,
           two_jobs_that_want_each_others_places_go_by_way_of_a_freeze,
           an_owner_who_leaves_is_rid_of_his_guest_and_gets_it_back,
           a_job_that_can_never_be_placed_waits_and_says_exactly_why,
           an_outbid_job_is_told_what_would_win, a_job_behind_those_of_its_own_user_is_told_so,
           elements_that_wait_are_never_told_to_outbid_their_siblings_as_if_they_were_others,
           the_prices_of_a_day_ago_are_told_only_by_a_market_that_had_them,
           a_full_disk_keeps_the_job_where_it_is_and_the_winner_gets_the_next_best_place,
           a_node_that_refuses_a_job_is_passed_over_and_tried_again_ever_more_rarely,
           a_node_that_lacks_a_program_is_not_asked_again_and_a_job_that_none_can_run_is_given_up,
           nobody_is_placed_where_less_memory_is_free,
           an_agent_that_speaks_for_others_is_refused_and_changes_nothing,
           an_answer_from_outside_says_nothing_about_what_came_after_the_question,
           an_idle_market_asks_for_nothing_but_a_look_at_its_prices_each_minute);
