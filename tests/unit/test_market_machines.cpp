// SPDX-License-Identifier: GPL-2.0-or-later
// A market of several kinds of machines: nothing is sent where it cannot go on.
#include "market/core/machines.hpp"
#include "tests/unit/market_world.hpp"

using namespace souk;
using namespace souk::market;

namespace {
Nanos s(int64_t n) { return Nanos::from_s(n); }

Machine machine(const char* features, const char* criu = "4.2.1") {
    return {"x86_64", "6.18.1", criu, 4096, features};
}

// n1, n2, n3: ever faster; off the market but n1.
void three_kinds(World& w) {
    const char* features[] = {"avx fpu sse2", "fpu sse2", "avx avx512f fpu sse2"};
    for (int i = 0; i < 3; ++i) {
        const NodeName name = "n" + std::to_string(i + 1);
        w.add_node(name, 60 + 20 * i, 1);
        ProviderReport p = w.providers[name];
        p.machine = machine(features[i]);
        p.on_market = i == 0;
        w.set_provider(p);
    }
}

void turn(World& w, const NodeName& name, bool on) {
    ProviderReport p = w.providers[name];
    p.on_market = on;
    w.set_provider(p);
}
}  // namespace

START_TEST(a_kind_takes_what_has_no_more_than_it_and_an_unknown_one_everything) {
    Machines m;
    ck_assert_int_eq(m.take({}), 0);
    const int old = m.take(machine("fpu sse2"));
    ck_assert(m.fits_all(old) && m.fits_all(0));
    const int rich = m.take(machine("avx fpu sse2")), other = m.take(machine("fpu sse2", "4.3"));
    ck_assert_int_eq(m.take(machine("avx fpu sse2")), rich);
    ck_assert(m.fits(rich, old) && !m.fits(old, rich) && m.fits(rich, rich));
    ck_assert(!m.fits(other, old) && !m.fits(old, other));
    const int same = m.take({"x86_64", "6.1", "4.2.1", 4096, "fpu sse2"});
    ck_assert(same != old && m.take_the_same(same, old) && !m.take_the_same(rich, old) &&
              !m.take_the_same(0, old));
    ck_assert_uint_eq(m.kinds(), 4);
    ck_assert(!m.fits_all(old) && !m.fits_all(rich) && !m.fits_all(other) && m.fits_all(0));
    for (const int kind : {old, rich, other}) ck_assert(m.fits(0, kind) && m.fits(kind, 0));
    for (size_t i = 0; i < Machines::kinds_max + 10; ++i)
        (void)m.take(machine(std::to_string(i).c_str()));
    ck_assert_uint_eq(m.kinds(), Machines::kinds_max);
    ck_assert_int_eq(m.take(machine("one too many")), 0);
    ck_assert_int_eq(m.take(machine("fpu sse2")), old);
}
END_TEST

START_TEST(a_kind_that_no_node_is_of_makes_room_for_another_and_refuses_nothing_any_more) {
    Machines m;
    const int plain = m.take(machine("fpu")), rich = m.take(machine("avx fpu"));
    ck_assert_int_eq(m.take(machine("avx fpu")), rich);
    ck_assert(!m.fits_all(rich) && !m.fits(plain, rich));
    // One node that is of another kind each time takes no more than one of the places.
    int last = m.take(machine("0"));
    for (size_t i = 1; i < Machines::kinds_max * 2; ++i) {
        const int next = m.take(machine(std::to_string(i).c_str()));
        ck_assert_int_ne(next, 0);
        m.leave(std::exchange(last, next));
    }
    m.leave(last);
    ck_assert_uint_eq(m.kinds(), 2);
    m.leave(plain);
    ck_assert(m.fits_all(rich));
    m.leave(rich);
    ck_assert_uint_eq(m.kinds(), 1);  // another node is of it
    m.leave(rich);
    m.leave(0);
    ck_assert_uint_eq(m.kinds(), 0);
    const int again = m.take(machine("avx fpu")), other = m.take(machine("fpu"));
    ck_assert(m.fits(again, other) && !m.fits(other, again) && m.fits_all(other));
}
END_TEST

START_TEST(a_job_is_never_sent_to_a_machine_that_lacks_what_it_has_seen) {
    World w;
    three_kinds(w);
    const JobId a = w.submit("n1", 100);
    w.run_for(s(1));
    ck_assert_text(w.jobs.at(a).report.where, "n1");
    turn(w, "n2", true);
    w.run_for(s(5));
    ck_assert_text(w.jobs.at(a).report.where, "n1");  // n2 is faster, and has no avx
    const auto refused = w.market->move(a, "n2", false, 0);
    ck_assert(!refused.has_value());
    ck_assert_text(refused.error().message,
                   "node n2 cannot take it: the job's CPU has avx, this one has not");
    const JobId b = w.submit("n2", 50);
    w.run_for(s(1));
    ck_assert_text(w.jobs.at(b).report.where, "n2");  // what never ran may start anywhere
    turn(w, "n3", true);
    w.run_for(s(5));
    ck_assert_text(w.jobs.at(a).report.where, "n3");
    turn(w, "n3", false);
    w.run_for(s(5));
    ck_assert(w.jobs.at(a).report.phase == JobPhase::frozen);  // it may use avx512f by now
    ck_assert_text(w.jobs.at(b).report.where, "n2");
    for (const Order& order : w.orders) ck_assert(order.id != a || order.node != "n2");
    // Also after a restart, from what it has stored.
    w.restart();
    for (const NodeName name : {"n1", "n2", "n3"}) w.connect(name);
    w.run_for(s(10));
    ck_assert(w.jobs.at(a).report.phase == JobPhase::frozen);
    turn(w, "n3", true);
    w.run_for(s(10));
    ck_assert(w.jobs.at(a).report.phase == JobPhase::running);
    ck_assert_text(w.jobs.at(a).report.where, "n3");
}
END_TEST

START_TEST(a_machine_that_is_changed_is_asked_anew) {
    World w;
    three_kinds(w);
    const JobId a = w.submit("n1", 100);
    turn(w, "n2", true);
    w.run_for(s(1));
    // Whichever it was started on: n2 becomes as n1, with another CRIU first.
    ProviderReport p = w.providers["n2"];
    turn(w, "n2", false);
    w.run_for(s(2));
    const NodeName before = w.jobs.at(a).report.where;
    p.machine = machine("avx fpu sse2", "4.3");
    w.set_provider(p);
    w.run_for(s(5));
    ck_assert(w.jobs.at(a).report.where == before);
    p.machine = w.providers["n1"].machine;
    w.set_provider(p);
    w.run_for(s(10));
    ck_assert_text(w.jobs.at(a).report.where, "n2");
}
END_TEST

START_TEST(the_slowest_speed_that_may_be_said_is_slower_than_the_next) {
    for (const bool first : {false, true}) {
        World w;
        w.add_node("n1", first ? 2 : 1, 1);
        w.add_node("n2", first ? 1 : 2, 1);
        const JobId a = w.submit("n1", 100);
        w.run_for(s(1));
        ck_assert_text(w.jobs.at(a).report.where, first ? "n1" : "n2");
    }
}
END_TEST

UNIT_SUITE(market_machines, a_kind_takes_what_has_no_more_than_it_and_an_unknown_one_everything,
           a_kind_that_no_node_is_of_makes_room_for_another_and_refuses_nothing_any_more,
           a_job_is_never_sent_to_a_machine_that_lacks_what_it_has_seen,
           a_machine_that_is_changed_is_asked_anew,
           the_slowest_speed_that_may_be_said_is_slower_than_the_next);
