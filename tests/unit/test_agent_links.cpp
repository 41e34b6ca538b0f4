// SPDX-License-Identifier: GPL-2.0-or-later
// What one user asks of an agentd leaves room for all others.
#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "agentd/daemon/user_turns.hpp"
#include "tests/unit/loop_fixture.hpp"

using namespace souk;
using souk::unit::limit;
using souk::unit::open_loop;

namespace {

void work(Nanos span) {
    for (const Nanos end = Loop::now() + span; Loop::now() < end;) {
    }
}

}  // namespace

START_TEST(a_users_requests_wait_when_they_have_taken_long_and_others_do_not) {
    Loop loop = open_loop();
    UserTurns turns(loop);
    for (int i = 0; i < 5; ++i) {
        ck_assert(turns.is_now(0));
        turns.run(0, [] { work(Nanos::from_ms(20)); });
    }
    ck_assert(turns.is_now(0) && turns.is_now(1000));
    turns.run(1000, [] { work(Nanos::from_ms(60)); });
    ck_assert(!turns.is_now(1000));
    ck_assert(turns.is_now(0) && turns.is_now(1001));
    std::string order;
    const Nanos begun = Loop::now();
    for (const char* who : {"a", "b", "c"}) turns.later(1000, [&order, who] { order += who; });
    ck_assert_text(order, "");
    UNTIL(loop, order == "abc");
    // He has waited until all but half of a burst is paid.
    ck_assert(Loop::now() - begun >= Nanos::from_ms(30));
    ck_assert(turns.is_now(1000));
}
END_TEST

START_TEST(users_who_always_ask_take_half_of_the_time_and_each_of_them_his_part) {
    Loop loop = open_loop();
    UserTurns turns(loop);
    std::map<uid_t, Nanos> took;
    bool over = false;
    std::function<void(uid_t)> ask = [&](uid_t uid) {
        turns.later(uid, [&, uid] {
            const Nanos begun = Loop::now();
            work(Nanos::from_ms(5));
            took[uid] += Loop::now() - begun;
            if (!over) ask(uid);
        });
    };
    const Nanos begun = Loop::now();
    for (int i = 0; i < 20; ++i) ask(1000);
    ask(1001);
    ask(1002);
    (void)loop.run_until([&] { return Loop::now() - begun >= Nanos::from_s(2); }, Nanos::from_s(3));
    over = true;
    const double all = (Loop::now() - begun).seconds();
    const double of[] = {took[1000].seconds(), took[1001].seconds(), took[1002].seconds()};
    ck_assert_msg(of[0] + of[1] + of[2] < 0.75 * all, "%f of %f", of[0] + of[1] + of[2], all);
    for (const double part : of) ck_assert_msg(part > 0.05 * all, "%f of %f", part, all);
}
END_TEST

UNIT_SUITE(agent_links, a_users_requests_wait_when_they_have_taken_long_and_others_do_not,
           users_who_always_ask_take_half_of_the_time_and_each_of_them_his_part);
