// SPDX-License-Identifier: GPL-2.0-or-later
// Market: deadlines that are promised to jobs of several components.
#include "tests/unit/promising.hpp"

using namespace souk;
using namespace souk::market;
using namespace souk::market::reserving;

START_TEST(all_components_are_promised_together_at_one_price_or_none_is) {
    Promising p;
    p.w.add_node("n1", 100, 1, 2);
    p.w.add_node("n2", 50, 3, 1);
    p.w.run_for(s(2));
    const auto few = p.submit_gang("n1", 20, s(1'000), s(100), s(95), 4);
    const auto all = p.submit_gang("n1", 20, s(1'000), s(100), s(95), 3);
    p.run_for(s(2));
    for (const JobId& id : few) {
        ck_assert(!p.contract(id).is_sold() && p.promised(id).deadline.ns == 0);
        ck_assert(p.code(id) == ReasonCode::promise_late);
    }
    std::map<NodeName, int> places;
    const Contract& first = p.contract(all[0]);
    for (const JobId& id : all) {
        const Contract& c = p.contract(id);
        ++places[c.node];
        ck_assert(c.price == first.price && c.start == first.start && c.end == first.end);
        ck_assert_uint_eq(p.promised(id).deadline.ns, p.works[id].deadline.ns);
    }
    ck_assert(places["n1"] == 2 && places["n2"] == 1 && first.price == Money::units(3));
    // As long as it takes on the slowest of their nodes.
    ck_assert(first.end - first.start >= s(200) && first.end - first.start <= s(225));
    // Others bid more, so that it has to wait for its places, and all begin together.
    for (const JobId& id : all) p.w.jobs[id].report.terms.max_price = Money::units(3);
    for (const JobId& id : all) p.w.tell(p.w.jobs[id]);
    for (int i = 0; i < 3; ++i) (void)p.w.submit("n1", 50);
    p.run_for(s(10));
    for (const JobId& id : all) ck_assert(p.where(id).empty());
    p.run_for(p.contract(all[0]).start - p.unix() + s(1));
    for (const JobId& id : all) ck_assert_text(p.where(id), p.contract(id).node);
    p.run_for(s(240));
    for (const JobId& id : all) {
        ck_assert(p.promised(id).end == PromiseEnd::kept && p.broken(id).empty());
        ck_assert(p.works[id].ended <= p.works[id].deadline);
    }
}
END_TEST

START_TEST(components_that_have_ended_wait_for_the_last_one_and_its_promise) {
    for (const bool restarts : {false, true})
        for (const bool in_time : {false, true}) {
            Promising p;
            p.w.add_node("n1", 100, 1, 3);
            p.w.run_for(s(2));
            const auto all = p.submit_gang("n1", 20, s(300), s(100), s(50), 2);
            p.works[all[1]].needs = in_time ? s(90) : s(1'000);
            p.run_for(s(70));
            ck_assert(p.w.phase(all[0]) == JobPhase::finished);
            ck_assert(p.promised(all[0]).end == PromiseEnd::none);
            if (restarts) p.w.restart(), p.w.connect("n1");
            p.run_for(s(100));
            if (!in_time) {
                for (const JobId& id : all) ck_assert(p.promised(id).end == PromiseEnd::none);
                p.run_for(s(150));
            }
            for (const JobId& id : all) {
                const PromiseEnd end = in_time ? PromiseEnd::kept : PromiseEnd::took_longer;
                ck_assert_text(to_string(p.promised(id).end), to_string(end));
                ck_assert_uint_eq(p.broken(id).size(), in_time ? 0 : 1);
            }
        }
}
END_TEST

START_TEST(the_promise_of_a_gang_is_broken_as_one_and_who_left_gives_back_what_he_got) {
    Promising p;
    p.w.add_node("n1", 100, 1);
    p.w.add_node("n2", 100, 1);
    p.w.run_for(s(2));
    (void)p.submit("n1", 20, s(300), s(100), s(100));  // both have earned before
    (void)p.submit("n2", 20, s(300), s(100), s(100));
    p.run_for(s(400));
    const auto all = p.submit_gang("n2", 20, s(120), s(100), s(100), 2);
    p.run_for(s(1));
    for (const JobId& id : all) p.w.jobs[id].report.terms.max_price = Money::units(1);
    for (const JobId& id : all) p.w.tell(p.w.jobs[id]);
    for (int i = 0; i < 2; ++i) (void)p.w.submit("n2", 50);
    p.run_for(s(60));
    for (const JobId& id : all) ck_assert_text(p.where(id), p.contract(id).node);
    const bool first_on_n1 = p.where(all[0]) == "n1";
    p.owner("n1", false);
    p.run_for(s(100));
    for (const JobId& id : all) {
        const auto receipts = p.broken(id);
        ck_assert_uint_eq(receipts.size(), 1);
        ck_assert_text(receipts[0].note, "deadline missed: owner_left");
        const bool on_n1 = (id == all[0]) == first_on_n1;
        ck_assert((receipts[0].paid.micro < 0) == on_n1);
        ck_assert_text(receipts[0].node, on_n1 ? "n1" : "");
    }
}
END_TEST

START_TEST(a_component_whose_node_leaves_gets_another_place_and_all_begin_together) {
    Promising p;
    for (const char* const node : {"n1", "n2", "n3"}) p.w.add_node(node, 100, 1);
    p.w.add_node("n4", 50, 1);
    p.w.run_for(s(2));
    const auto all = p.submit_gang("n4", 20, s(1'000), s(100), s(2'000), 2);
    p.run_for(s(2));
    const NodeName left = p.contract(all[1]).node;
    p.owner(left, false);
    p.run_for(s(3));
    const Contract &a = p.contract(all[0]), &b = p.contract(all[1]);
    ck_assert(b.node != left && b.node != "n4" && a.node != b.node);
    ck_assert(a.start == b.start && a.price == b.price && b.places_lost == 1);
    for (int i = 0; i < 30; ++i) {
        p.run_for(s(20));
        ck_assert(p.contract(all[0]).start == p.contract(all[1]).start);
    }
}
END_TEST

START_TEST(an_optional_component_is_promised_nothing_and_one_that_fails_ends_the_promise) {
    Promising p;
    p.w.add_node("n1", 100, 1, 4);
    p.w.run_for(s(2));
    const auto all = p.submit_gang("n1", 20, s(1'000), s(100), s(5'000), 3, 2);
    p.run_for(s(5));
    for (const JobId& id : all) ck_assert(p.w.phase(id) == JobPhase::running);
    ck_assert(!p.contract(all[2]).is_sold() && p.promised(all[2]).deadline.ns == 0);
    ck_assert(p.contract(all[0]).is_sold() && p.contract(all[1]).is_sold());
    p.w.jobs[all[1]].report.wait_status = 256;
    p.w.end(p.w.jobs[all[1]]);
    p.run_for(s(1));
    for (const size_t i : {size_t{0}, size_t{2}}) {
        JobReport& r = p.w.jobs[all[i]].report;
        r.cancelled = true;
        r.why = souk::Cause(CauseCode::component_ended, "component 1 has ended");
        p.w.end(p.w.jobs[all[i]]);
    }
    p.run_for(s(2));
    for (const size_t i : {size_t{0}, size_t{1}}) {
        ck_assert_text(to_string(p.promised(all[i]).end), "kept");
        ck_assert(p.broken(all[i]).empty());
    }
    // A cancel of all is no promise that was kept.
    const auto gone = p.submit_gang("n1", 20, s(1'000), s(100), s(5'000), 2);
    p.run_for(s(5));
    ck_assert(p.contract(gone[0]).is_sold());
    for (const JobId& id : gone) {
        p.w.jobs[id].report.cancelled = true;
        p.w.jobs[id].report.why = "cancelled";
        p.w.end(p.w.jobs[id]);
    }
    p.run_for(s(2));
    for (const JobId& id : gone) ck_assert(p.promised(id).end == PromiseEnd::withdrawn);
}
END_TEST

UNIT_SUITE(gang_promises, all_components_are_promised_together_at_one_price_or_none_is,
           components_that_have_ended_wait_for_the_last_one_and_its_promise,
           the_promise_of_a_gang_is_broken_as_one_and_who_left_gives_back_what_he_got,
           a_component_whose_node_leaves_gets_another_place_and_all_begin_together,
           an_optional_component_is_promised_nothing_and_one_that_fails_ends_the_promise);
