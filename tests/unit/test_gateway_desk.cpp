// SPDX-License-Identifier: GPL-2.0-or-later
// A gateway brings nodes together. Method: single stories, and thousands of random steps of nodes,
// askers, strangers and time, after each of which every socket is held, closed or joined, once, and
// no bound is passed.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "agentd/core/gateway_desk.hpp"
#include "agentd/core/gateway_pass.hpp"
#include "kernel/base/rng.hpp"
#include "tests/unit/loop_fixture.hpp"

namespace souk::unit {
namespace {

constexpr Nanos s(int64_t n) { return Nanos::from_s(n); }

// The passes of question `n`.
std::string pass(uint64_t n, char kind) {
    std::string text = std::to_string(n);
    return std::string(gateway_pass_digits - 1 - text.size(), '0') + text + kind;
}

struct Hall {
    GatewayDesk desk;
    uint64_t questions = 0;
    explicit Hall(GatewayDesk::Bounds bounds = {}) : desk(bounds) {}

    void meet(uint64_t connection, const NodeName& name, const std::string& site = "") {
        OK(desk.met(connection, name, site));
    }
    void offer(uint64_t connection, const NodeName& name) {
        meet(connection, name);
        OK(desk.offered(connection));
    }
    GatewayDesk::Outputs ask(uint64_t connection, const NodeName& node, Nanos now = {},
                             const std::string& onward = "") {
        GatewayDesk::Outputs out;
        const uint64_t n = ++questions;
        desk.asked(connection, {n, node, onward, pass(n, 'c'), pass(n, 'a')}, now, out);
        return out;
    }
    GatewayDesk::Outputs come(uint64_t socket, const std::string& with, Nanos now = {}) {
        GatewayDesk::Outputs out;
        desk.came(socket, with, now, out);
        return out;
    }
    GatewayDesk::Outputs look(Nanos now) {
        GatewayDesk::Outputs out;
        desk.look(now, out);
        return out;
    }
    GatewayDesk::Outputs leave(uint64_t connection) {
        GatewayDesk::Outputs out;
        desk.gone(connection, out);
        return out;
    }
    // A whole relay of these two, by the sockets 100 and 200 and more.
    void join(uint64_t asker, const NodeName& node, uint64_t base) {
        ck_assert_uint_eq(ask(asker, node).calls.size(), 1);
        ck_assert_uint_eq(come(base, pass(questions, 'c')).answers.size(), 1);
        ck_assert_uint_eq(come(base + 1, pass(questions, 'a')).joins.size(), 1);
    }
};

CauseCode code(const GatewayDesk::Outputs& out) {
    ck_assert_uint_eq(out.answers.size(), 1);
    ck_assert(out.calls.empty() && out.onward.empty());
    ck_assert(out.answers[0].pass.empty());
    return out.answers[0].why.code;
}

}  // namespace

START_TEST(a_node_that_is_called_and_who_asks_for_it_are_brought_together) {
    Hall hall;
    hall.offer(1, "n3");
    hall.meet(2, "lab:n1", "lab");
    const auto asked = hall.ask(2, "n3");
    ck_assert(asked.answers.empty());
    ck_assert((asked.calls == std::vector<GatewayDesk::Call>{{1, pass(1, 'c')}}));
    // The asker has no pass yet, and the pass of the called node is not his.
    ck_assert(hall.come(9, pass(1, 'a')).closed == std::vector<uint64_t>{9});
    const auto here = hall.come(10, pass(1, 'c'));
    ck_assert((here.answers == std::vector<GatewayDesk::Answer>{{2, 1, pass(1, 'a'), {}}}));
    const auto both = hall.come(11, pass(1, 'a'));
    ck_assert((both.joins == std::vector<GatewayDesk::Join>{{1, 10, 11}}));
    ck_assert_uint_eq(hall.desk.figures().relays, 1);
    ck_assert(!hall.desk.is_waiting());
    hall.desk.ended(1);
    ck_assert_uint_eq(hall.desk.figures().links, 0);
}
END_TEST

START_TEST(a_pass_is_good_once_and_for_a_while) {
    Hall hall;
    hall.offer(1, "n3");
    hall.meet(2, "n1");
    hall.join(2, "n3", 100);
    for (const char kind : {'a', 'c'})
        ck_assert(hall.come(102, pass(1, kind)).closed == std::vector<uint64_t>{102});
    for (const std::string& nothing :
         {std::string(), std::string(gateway_pass_digits, '0'), std::string("x"), pass(77, 'c')})
        ck_assert(hall.come(103, nothing).closed == std::vector<uint64_t>{103});
    (void)hall.ask(2, "n3", s(10));
    ck_assert(hall.look(s(10) + GatewayDesk::patience - Nanos{1}).answers.empty());
    const auto late = hall.look(s(10) + GatewayDesk::patience);
    ck_assert(code(late) == CauseCode::away);
    ck_assert(hall.come(104, pass(2, 'c')).closed == std::vector<uint64_t>{104});
    // The called node comes, and who asked does not.
    (void)hall.ask(2, "n3", s(20));
    (void)hall.come(105, pass(3, 'c'), s(24));
    ck_assert(hall.look(s(28)).closed.empty());
    ck_assert(hall.look(s(29)).closed == std::vector<uint64_t>{105});
    ck_assert(hall.come(106, pass(3, 'a')).closed == std::vector<uint64_t>{106});
    ck_assert_uint_eq(hall.desk.figures().links, 1);
}
END_TEST

START_TEST(nobody_is_brought_to_who_has_not_offered_himself) {
    Hall hall;
    hall.meet(1, "n3");
    hall.meet(2, "n1");
    ck_assert(code(hall.ask(2, "n3")) == CauseCode::away);
    ck_assert(code(hall.ask(2, "192.0.2.1:22")) == CauseCode::away);
    OK(hall.desk.offered(1));
    ck_assert_uint_eq(hall.ask(2, "n3").calls.size(), 1);
    (void)hall.leave(1);
    ck_assert(code(hall.ask(2, "n3")) == CauseCode::away);
}
END_TEST

START_TEST(a_node_of_another_site_neither_offers_itself_nor_has_others_asked) {
    Hall hall;
    hall.meet(1, "lab:n3", "lab");
    const Status offered = hall.desk.offered(1);
    ck_assert(!offered);
    ck_assert(code(hall.ask(1, "lab:n3")) == CauseCode::away);
    ck_assert(code(hall.ask(1, "uni:n3", {}, "192.0.2.1:7071")) == CauseCode::not_allowed);
}
END_TEST

START_TEST(the_gateway_of_another_site_is_asked_for_a_node_of_this_one) {
    Hall shut;
    shut.meet(1, "n1");
    ck_assert(code(shut.ask(1, "uni:n3", {}, "192.0.2.1:7071")) == CauseCode::not_possible);
    Hall hall({.onward = true});
    hall.meet(1, "n1");
    ck_assert(code(hall.ask(1, "n3", {}, "192.0.2.1:7071")) == CauseCode::not_allowed);
    hall.questions = 0;
    const auto out = hall.ask(1, "uni:n3", {}, "192.0.2.1:7071");
    ck_assert((out.onward == std::vector<GatewayDesk::Onward>{{1, "192.0.2.1:7071", "uni:n3"}}));
    // Its socket comes from there: nobody takes its place by a pass.
    ck_assert(hall.come(9, pass(1, 'c')).closed == std::vector<uint64_t>{9});
    GatewayDesk::Outputs next;
    hall.desk.fetched(1, 10, {}, next);
    ck_assert((next.answers == std::vector<GatewayDesk::Answer>{{1, 1, pass(1, 'a'), {}}}));
    ck_assert_uint_eq(hall.come(11, pass(1, 'a')).joins.size(), 1);
    (void)hall.ask(1, "uni:n4", {}, "192.0.2.1:7071");
    GatewayDesk::Outputs none;
    hall.desk.not_fetched(2, {CauseCode::away, "it is not there"}, none);
    ck_assert(code(none) == CauseCode::away);
    (void)hall.ask(1, "uni:n5", {}, "192.0.2.1:7071");
    ck_assert(hall.look(s(5)).given_up == std::vector<uint64_t>{3});
    GatewayDesk::Outputs late;
    hall.desk.fetched(3, 12, s(6), late);
    ck_assert(late.closed == std::vector<uint64_t>{12});
}
END_TEST

START_TEST(a_connection_that_ends_takes_along_what_is_begun_and_no_relay) {
    Hall hall;
    hall.offer(1, "n3");
    hall.meet(2, "n1");
    hall.join(2, "n3", 100);
    (void)hall.ask(2, "n3");
    (void)hall.come(110, pass(2, 'c'));
    (void)hall.ask(2, "n3");
    // The called node goes: who waits for it hears so, who has it does not need it.
    const auto lost = hall.leave(1);
    ck_assert(code(lost) == CauseCode::away && lost.closed.empty());
    // The asker goes: the node that has come for him is let go.
    ck_assert(hall.leave(2).closed == std::vector<uint64_t>{110});
    ck_assert_uint_eq(hall.desk.figures().relays, 1);
    ck_assert_uint_eq(hall.desk.figures().links, 1);
}
END_TEST

START_TEST(the_newest_connection_of_a_node_is_called) {
    Hall hall;
    hall.offer(1, "n3");
    hall.offer(2, "n3");
    hall.meet(3, "n1");
    ck_assert_uint_eq(hall.ask(3, "n3").calls[0].connection, 2);
    (void)hall.leave(1);
    ck_assert_uint_eq(hall.ask(3, "n3").calls[0].connection, 2);
}
END_TEST

START_TEST(nobody_fills_a_gateway_for_others) {
    Hall hall({.all = 40, .site = 12, .asker = 8, .node = 20, .incomplete = 3, .connections = 64});
    for (uint64_t n = 1; n <= 4; ++n) hall.offer(n, "n" + std::to_string(n));
    for (uint64_t n = 11; n <= 22; ++n) hall.meet(n, "lab:n" + std::to_string(n), "lab");
    ck_assert(!hall.desk.met(23, "lab:n23", "lab"));
    hall.meet(24, "uni:n1", "uni");
    // what is begun, of one asker
    for (int i = 0; i < 3; ++i) ck_assert_uint_eq(hall.ask(11, "n1").calls.size(), 1);
    ck_assert(code(hall.ask(11, "n1")) == CauseCode::too_many);
    ck_assert_uint_eq(hall.ask(12, "n1").calls.size(), 1);
    (void)hall.look(s(100));
    // what stands, of one asker, and of his site
    for (uint64_t i = 0; i < 8; ++i) hall.join(11, "n1", 1000 + 2 * i);
    ck_assert(code(hall.ask(11, "n1")) == CauseCode::too_many);
    for (uint64_t i = 0; i < 4; ++i) hall.join(12, "n2", 1100 + 2 * i);
    ck_assert(code(hall.ask(13, "n2")) == CauseCode::too_many);
    // others have room, until the node has enough, or all have
    for (uint64_t i = 0; i < 8; ++i) hall.join(24, "n1", 1200 + 2 * i);
    for (uint64_t i = 0; i < 4; ++i) hall.join(1, "n1", 1300 + 2 * i);
    ck_assert(code(hall.ask(2, "n1")) == CauseCode::too_many);
    for (uint64_t i = 0; i < 8; ++i) hall.join(3, "n4", 1400 + 2 * i);
    for (uint64_t i = 0; i < 8; ++i) hall.join(4, "n3", 1500 + 2 * i);
    ck_assert(code(hall.ask(2, "n4")) == CauseCode::too_many);
    ck_assert_uint_eq(hall.desk.figures().links, 40);
}
END_TEST

START_TEST(one_site_does_not_take_a_node_from_another) {
    Hall hall;
    uint64_t socket = 1'000'000;
    const auto fills = [&](uint64_t asker, const NodeName& node) {
        size_t relays = 0;
        for (Nanos now;; now = now + s(1)) {
            const auto out = hall.ask(asker, node, now);
            if (!out.answers.empty()) return relays;
            const std::string number = pass(hall.questions, 'c');
            (void)hall.come(++socket, number, now);
            (void)hall.come(++socket, pass(hall.questions, 'a'), now);
            ++relays;
        }
    };
    hall.offer(1, "n1");
    for (uint64_t n = 2; n <= 6; ++n) hall.offer(n, "n" + std::to_string(n));
    for (uint64_t n = 10; n < 20; ++n) hall.meet(n, "lab:n" + std::to_string(n), "lab");
    hall.meet(20, "uni:n1", "uni");
    size_t of_lab = 0;
    for (uint64_t n = 10; n < 20; ++n) of_lab += fills(n, "n1");
    ck_assert_uint_eq(of_lab, 128);
    ck_assert_uint_eq(fills(20, "n1"), 64);
    ck_assert_uint_eq(fills(2, "n1"), 64);  // its own site has its part
    for (uint64_t n = 10; n < 20; ++n)
        for (uint64_t to = 2; to <= 6; ++to) of_lab += fills(n, "n" + std::to_string(to));
    ck_assert_uint_eq(of_lab, 256);
}
END_TEST

START_TEST(who_asks_too_often_waits_and_nobody_else) {
    Hall hall;
    hall.meet(1, "n1");
    hall.meet(2, "n2");
    const auto often = [&](uint64_t asker, Nanos now) {
        size_t n = 0;
        while (code(hall.ask(asker, "n9", now)) == CauseCode::away) ++n;
        return n;
    };
    ck_assert_uint_eq(often(1, s(1)), 64);
    ck_assert_uint_eq(often(1, s(2)), 16);
    ck_assert_uint_eq(often(2, s(2)), 64);
    ck_assert_uint_eq(often(1, s(100)), 64);
}
END_TEST

START_TEST(a_key_that_counts_no_more_takes_its_relays_along) {
    Hall hall;
    hall.offer(1, "n3");
    hall.offer(2, "n1");
    hall.meet(3, "lab:n3", "lab");
    hall.join(2, "n3", 100);
    hall.join(3, "n1", 200);
    hall.join(1, "n1", 300);
    ck_assert(hall.desk.relays_of(1) == (std::vector<uint64_t>{1, 3}));
    ck_assert(hall.desk.relays_of(3) == std::vector<uint64_t>{2});
    ck_assert(hall.desk.relays_of(9).empty());
}
END_TEST

// Long: what may come, case by case.
START_TEST(whatever_comes_no_socket_is_lost_and_no_bound_is_passed) {
    constexpr GatewayDesk::Bounds bounds{.all = 30,
                                         .site = 8,
                                         .asker = 6,
                                         .node = 9,
                                         .incomplete = 4,
                                         .connections = 16,
                                         .onward = true};
    for (uint64_t seed = 1; seed <= 300; ++seed) {
        Rng rng(seed);
        Hall hall(bounds);
        std::set<uint64_t> met, held;
        std::map<uint64_t, std::pair<uint64_t, uint64_t>> joined;
        std::vector<std::string> known;
        std::vector<uint64_t> fetching;
        uint64_t next = 1;
        Nanos now;
        const auto take = [&](const GatewayDesk::Outputs& out) {
            for (const uint64_t socket : out.closed) ck_assert_uint_eq(held.erase(socket), 1);
            for (const auto& join : out.joins) {
                ck_assert_uint_eq(held.erase(join.called), 1);
                ck_assert_uint_eq(held.erase(join.asked), 1);
                ck_assert(joined.emplace(join.link, std::pair(join.called, join.asked)).second);
            }
            for (const auto& answer : out.answers) {
                ck_assert(met.contains(answer.connection));
                if (!answer.pass.empty()) known.push_back(answer.pass);
                ck_assert(answer.pass.empty() != answer.why.empty());
            }
            for (const auto& call : out.calls) {
                ck_assert(met.contains(call.connection));
                known.push_back(call.pass);
            }
            for (const auto& onward : out.onward) fetching.push_back(onward.link);
        };
        for (int step = 0; step < 400; ++step) {
            const auto one = [&](const std::set<uint64_t>& of) {
                return *std::next(of.begin(), static_cast<ptrdiff_t>(rng.below(of.size())));
            };
            const std::string name = "n" + std::to_string(rng.below(5));
            switch (rng.below(8)) {
                case 0: {
                    const bool other = rng.chance(0.4);
                    if (hall.desk.met(next, other ? "lab:" + name : name, other ? "lab" : ""))
                        met.insert(next);
                    ++next;
                    break;
                }
                case 1:
                    if (!met.empty()) (void)hall.desk.offered(one(met));
                    break;
                case 2:
                case 3:
                    if (!met.empty())
                        take(rng.chance(0.2) ? hall.ask(one(met), "uni:" + name, now, "g:1")
                                             : hall.ask(one(met), name, now));
                    break;
                case 4:
                    if (!known.empty()) {
                        held.insert(next);
                        take(hall.come(next++, known[rng.below(known.size())], now));
                    }
                    break;
                case 5:
                    if (!fetching.empty()) {
                        GatewayDesk::Outputs out;
                        held.insert(next);
                        hall.desk.fetched(fetching[rng.below(fetching.size())], next++, now, out);
                        take(out);
                    }
                    break;
                case 6:
                    if (!met.empty() && rng.chance(0.2)) {
                        const uint64_t gone = one(met);
                        met.erase(gone);
                        take(hall.leave(gone));
                    } else if (!joined.empty()) {
                        hall.desk.ended(joined.begin()->first);
                        joined.erase(joined.begin());
                    }
                    break;
                default:
                    now = now + Nanos::from_ms(static_cast<int64_t>(rng.below(2'000)));
                    take(hall.look(now));
            }
            const auto figures = hall.desk.figures();
            ck_assert_uint_eq(figures.relays, joined.size());
            ck_assert(figures.links <= bounds.all && figures.connections <= bounds.connections);
            ck_assert(figures.links - figures.relays >= held.size());
        }
        take(hall.look(now + s(60)));
        ck_assert(held.empty() && !hall.desk.is_waiting());
    }
}
END_TEST

UNIT_SUITE(gateway_desk, a_node_that_is_called_and_who_asks_for_it_are_brought_together,
           a_pass_is_good_once_and_for_a_while, nobody_is_brought_to_who_has_not_offered_himself,
           a_node_of_another_site_neither_offers_itself_nor_has_others_asked,
           the_gateway_of_another_site_is_asked_for_a_node_of_this_one,
           a_connection_that_ends_takes_along_what_is_begun_and_no_relay,
           the_newest_connection_of_a_node_is_called, nobody_fills_a_gateway_for_others,
           one_site_does_not_take_a_node_from_another, who_asks_too_often_waits_and_nobody_else,
           a_key_that_counts_no_more_takes_its_relays_along,
           whatever_comes_no_socket_is_lost_and_no_bound_is_passed);

}  // namespace souk::unit
