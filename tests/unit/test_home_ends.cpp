// SPDX-License-Identifier: GPL-2.0-or-later
// A job that is cancelled is asked to end, and has time to.
#include <csignal>

#include "tests/unit/home_bench.hpp"

using namespace souk;
using namespace souk::unit;

namespace {

constexpr Nanos grace = Nanos::from_s(30);

// The signals that went to all processes of a guest in the last step, and kills (0).
std::vector<int> asked(const Bench& b) {
    std::vector<int> all;
    for (const auto& o : b.out)
        if (const auto* g = std::get_if<home::ToGuest>(&o)) {
            if (g->command.verb == GuestVerb::signal && g->command.to_all)
                all.push_back(g->command.signal);
            if (g->command.verb == GuestVerb::kill) all.push_back(0);
        }
    return all;
}

Bench with_grace() {
    Bench b;
    Home::Limits limits = Bench::limits();
    limits.grace = grace;
    b.h = Home("n1", limits);
    return b;
}

using Asked = std::vector<int>;

}  // namespace

START_TEST(a_cancel_asks_once_and_ends_what_has_not_ended_when_its_time_is_over) {
    Bench b = with_grace();
    b.running().cancel();
    ck_assert(asked(b) == (Asked{SIGTERM, SIGCONT}));
    b.event("n2", 1, GuestState::running);
    ck_assert(asked(b).empty());
    b.wait(grace - Nanos{1});
    ck_assert(asked(b).empty());
    b.wait(Nanos{1});
    ck_assert(asked(b) == Asked{0});
    b.event("n2", 1, GuestState::running);  // the word was lost
    ck_assert(asked(b) == Asked{0});
    b.event("n2", 1, GuestState::killed, "ended", 9);
    ck_assert(b.job().phase == JobPhase::finished);
    ck_assert_text(b.job().why, "cancelled");
}
END_TEST

START_TEST(one_that_ends_by_itself_in_its_time_is_cancelled_with_its_own_status) {
    Bench b = with_grace();
    b.running().cancel().event("n2", 1, GuestState::exited, "", 3 << 8);
    ck_assert(b.job().phase == JobPhase::finished);
    ck_assert_int_eq(b.job().wait_status, 3 << 8);
    ck_assert_text(b.job().why, "cancelled");
}
END_TEST

START_TEST(what_cannot_run_has_no_time) {
    Bench frozen = with_grace();
    frozen.frozen().cancel();
    ck_assert(asked(frozen) == Asked{0});
    Bench standing = with_grace();
    standing.running().suspend().in_place("n2", 1).cancel();
    ck_assert(asked(standing) == Asked{0});
    Bench none;  // its home gives none
    none.running().cancel();
    ck_assert(asked(none) == Asked{0});
}
END_TEST

START_TEST(the_owner_who_wants_the_machine_does_not_wait_for_it) {
    Bench b = with_grace();
    b.running().cancel();
    Expel expel;
    expel.id = id;
    expel.epoch = {1};
    b.out.clear();
    b.h.expel("n2", expel, b.now, b.out);
    b.wait(Nanos{1});
    ck_assert(asked(b) == Asked{0});
}
END_TEST

START_TEST(a_move_that_is_given_up_by_the_cancel_leaves_it_its_time_where_it_was) {
    Bench b = with_grace();
    b.shipping().cancel();
    ck_assert(asked(b) == (Asked{0, SIGTERM, SIGCONT}));  // the candidate is ended at once
    Bench decided = with_grace();
    decided.committed().cancel();
    ck_assert(asked(decided).empty());
    decided.event("n2", 1, GuestState::frozen).event("n3", 2, GuestState::running);
    ck_assert(asked(decided) == (Asked{SIGTERM, SIGCONT}));
}
END_TEST

START_TEST(a_home_that_comes_back_asks_once_more) {
    Bench b = with_grace();
    b.running().cancel().wait(Nanos::from_s(20));
    Bench later = with_grace();
    later.now = b.now;
    later.h.load(b.job());
    later.h.restarted(later.now, later.out);
    later.event("n2", 1, GuestState::running);
    ck_assert(asked(later) == (Asked{SIGTERM, SIGCONT}));
    later.wait(grace);
    ck_assert(asked(later) == Asked{0});
}
END_TEST

UNIT_SUITE(home_ends, a_cancel_asks_once_and_ends_what_has_not_ended_when_its_time_is_over,
           one_that_ends_by_itself_in_its_time_is_cancelled_with_its_own_status,
           what_cannot_run_has_no_time, the_owner_who_wants_the_machine_does_not_wait_for_it,
           a_move_that_is_given_up_by_the_cancel_leaves_it_its_time_where_it_was,
           a_home_that_comes_back_asks_once_more);
