// SPDX-License-Identifier: GPL-2.0-or-later
// A Home ends a job that has run as long as its user lets it, and runs one again that failed.
#include <csignal>
#include <cstring>

#include "tests/unit/home_bench.hpp"

using namespace souk;
using namespace souk::unit;

namespace {

constexpr Nanos minute = Nanos::from_s(60);

Bench with_limits(const RunLimits& limits, const JobTries& tries = {}) {
    Bench b;
    Submission s;
    s.spec.launch.argv = {"/bin/job"};
    s.terms.max_price = Money::units(1);
    s.terms.limits = limits;
    s.tries = tries;
    ck_assert(b.h.submit(s, b.now, b.out).has_value());
    return b;
}

// From n1 (the home) to a node of that speed.
void run_on(Bench& b, const char* node, int64_t speed, uint64_t epoch) {
    Order o;
    o.id = id;
    o.seq = ++b.seq;
    o.node = node;
    o.address = std::string(node) + ":1";
    o.speed = speed;
    o.books = true;
    o.resources = *b.job().terms.resources;
    b.out.clear();
    b.h.order(o, b.now, b.out);
    b.event(node, epoch, GuestState::running);
}

std::vector<int32_t> signals(const Bench& b) {
    std::vector<int32_t> all;
    for (const auto& o : b.out)
        if (const auto* g = std::get_if<home::ToGuest>(&o))
            if (g->command.verb == GuestVerb::signal) all.push_back(g->command.signal);
    return all;
}

bool says(const Bench& b, const char* words) {
    return std::strstr(b.text().c_str(), words) != nullptr;
}

bool is_ended(const Bench& b) { return b.job().cancelled; }

}  // namespace

START_TEST(a_job_ends_when_it_has_run_its_time_and_waits_and_freezes_do_not_count) {
    Bench b = with_limits({.run = minute});
    b.wait(minute);  // it waits for a place
    ck_assert(!is_ended(b));
    run_on(b, "n2", 100, 1);
    b.wait(Nanos::from_s(40)).suspend().event("n2", 1, GuestState::frozen);
    b.wait(minute);
    ck_assert(!is_ended(b) && b.job().phase == JobPhase::frozen);
    b.run_on("n2").event("n2", 2, GuestState::prepared).event("n2", 2, GuestState::held);
    b.event("n2", 2, GuestState::running);
    ck_assert(b.job().phase == JobPhase::running);
    b.wait(Nanos::from_s(20) - Nanos{1});
    ck_assert(!is_ended(b));
    b.wait(Nanos{1});
    ck_assert(is_ended(b) && says(b, "kill"));
    b.event("n2", 2, GuestState::killed);
    ck_assert(b.job().phase == JobPhase::finished && b.job().why.code == CauseCode::time_limit);
    ck_assert_text(std::string(b.job().why), "its time limit of 1m is over");
}
END_TEST

START_TEST(a_limit_at_a_speed_counts_by_the_speed_of_each_node) {
    Bench b = with_limits({.run = minute, .at_speed = 100});
    run_on(b, "n2", 50, 1);
    b.wait(minute);  // half of it
    ck_assert(!is_ended(b));
    // A home that does not know this machine's boot forgets the stretch.
    Bench restarted = b.again();
    restarted.event("n2", 1, GuestState::running).wait(Nanos::from_s(119));
    ck_assert(!is_ended(restarted));
    restarted.wait(Nanos::from_s(1));
    ck_assert(is_ended(restarted));
    run_on(b, "n3", 200, 2);
    b.event("n2", 1, GuestState::dump_ready).event("n3", 2, GuestState::prepared);
    b.event("n2", 1, GuestState::shipped).event("n3", 2, GuestState::held);
    b.event("n2", 1, GuestState::frozen).event("n3", 2, GuestState::running);
    ck_assert(b.job().at.node == "n3" && b.job().phase == JobPhase::running);
    b.wait(Nanos::from_s(15) - Nanos{1});
    ck_assert(!is_ended(b));
    b.wait(Nanos{2});
    ck_assert(is_ended(b));
}
END_TEST

START_TEST(a_signal_warns_once_before_and_more_time_takes_the_end_away) {
    Bench b = with_limits({.run = minute, .signal = SIGUSR1, .before = Nanos::from_s(10)});
    run_on(b, "n2", 100, 1);
    b.wait(Nanos::from_s(50) - Nanos{1});
    ck_assert(signals(b).empty());
    b.wait(Nanos{1});
    ck_assert(signals(b) == std::vector<int32_t>{SIGUSR1});
    b.wait(Nanos::from_s(5));
    ck_assert(signals(b).empty() && !is_ended(b));
    JobTerms more = b.job().terms;
    more.limits.edit().run = Nanos::from_s(120);
    b.out.clear();
    ck_assert(b.h.change(id, more, b.now, b.out).has_value());
    b.wait(minute - Nanos::from_s(10));
    ck_assert(!is_ended(b));
    b.wait(Nanos::from_s(5));
    ck_assert(signals(b) == std::vector<int32_t>{SIGUSR1});
    b.wait(Nanos::from_s(10));
    ck_assert(is_ended(b));
}
END_TEST

START_TEST(cpu_time_is_asked_for_when_it_may_be_used_up) {
    Bench b = with_limits({.cpu = minute});
    run_on(b, "n2", 100, 1);
    b.wait(minute - Nanos{1});
    ck_assert_text(b.text(), "");
    b.wait(Nanos{1});
    ck_assert_text(b.text(), "query n2.1");
    GuestEvent e;
    e.id = id;
    e.epoch = {1};
    e.state = GuestState::running;
    e.cpu_time = Nanos::from_s(40);
    b.out.clear();
    b.h.guest_event("n2", e, b.now, b.out);
    b.wait(Nanos::from_s(20));
    ck_assert_text(b.text(), "query n2.1");
    e.cpu_time = minute;
    b.out.clear();
    b.h.guest_event("n2", e, b.now, b.out);
    b.wait(Nanos::from_s(1));
    ck_assert(is_ended(b) && b.job().ended_for.code == CauseCode::cpu_limit);
}
END_TEST

START_TEST(a_job_that_fails_is_run_again_after_a_pause_as_often_as_was_said) {
    Bench b = with_limits({}, {.most = 2});
    run_on(b, "n2", 100, 1);
    for (uint64_t attempt = 1; attempt <= 2; ++attempt) {
        b.event("n2", attempt, GuestState::exited, "", 3 << 8);
        ck_assert(b.job().phase == JobPhase::waiting && b.job().tries.used == attempt);
        const JobReport* r = b.reported();
        ck_assert(r && !r->waits_for.empty());
        ck_assert(b.job().story.steps().back().why.code == CauseCode::tried_again);
        Bench later = b.again();  // its home restarts in the pause, which begins anew
        ck_assert(later.job().phase == JobPhase::waiting && later.job().tries.used == attempt);
        b.wait(Nanos::from_s(5 * static_cast<int64_t>(attempt)) - Nanos{1});
        ck_assert(!b.reported());
        b.wait(Nanos{1});
        ck_assert(b.reported() && b.reported()->waits_for.empty());
        b.event("n2", attempt, GuestState::unknown);
        run_on(b, "n2", 100, attempt + 1);
        ck_assert(b.job().phase == JobPhase::running);
    }
    b.event("n2", 3, GuestState::exited, "", 3 << 8);
    ck_assert(b.job().phase == JobPhase::finished && b.job().wait_status == 3 << 8);
    ck_assert(b.job().comment.code == CauseCode::tries_over);
}
END_TEST

START_TEST(only_the_failures_that_were_named_count) {
    const auto goes_on = [](const JobTries& tries, GuestState state, int32_t status) {
        Bench b = with_limits({}, tries);
        run_on(b, "n2", 100, 1);
        b.event("n2", 1, state, state == GuestState::killed ? "its capsule ended" : "", status);
        return b.job().phase == JobPhase::waiting;
    };
    const JobTries one{.most = 1, .statuses = {75}}, by_signal{.most = 1, .signal = true},
        by_node{.most = 1, .node = true}, any{.most = 1};
    ck_assert(goes_on(one, GuestState::exited, 75 << 8));
    ck_assert(!goes_on(one, GuestState::exited, 1 << 8));
    ck_assert(!goes_on(one, GuestState::exited, SIGSEGV));
    ck_assert(goes_on(by_signal, GuestState::exited, SIGSEGV));
    ck_assert(!goes_on(by_signal, GuestState::killed, 0));
    ck_assert(goes_on(by_node, GuestState::killed, 0));
    ck_assert(!goes_on(by_node, GuestState::exited, 1 << 8));
    for (const int32_t status : {1 << 8, 75 << 8, SIGSEGV})
        ck_assert(goes_on(any, GuestState::exited, status));
    ck_assert(!goes_on(any, GuestState::exited, 0));
    Bench cancelled = with_limits({}, any);
    run_on(cancelled, "n2", 100, 1);
    cancelled.cancel().event("n2", 1, GuestState::killed);
    ck_assert(cancelled.job().phase == JobPhase::finished);
}
END_TEST

START_TEST(a_job_that_is_cancelled_in_the_pause_ends) {
    Bench b = with_limits({}, {.most = 5});
    run_on(b, "n2", 100, 1);
    b.event("n2", 1, GuestState::exited, "", 1 << 8).cancel();
    ck_assert(b.job().phase == JobPhase::finished && b.job().why.code == CauseCode::cancelled);
    b.wait(Nanos::from_s(600));
    ck_assert(b.job().phase == JobPhase::finished);
}
END_TEST

START_TEST(a_job_that_is_to_begin_later_waits_until_then_although_its_home_restarts) {
    Bench b;
    Submission s;
    s.spec.launch.argv = {"/bin/job"};
    s.terms.max_price = Money::units(1);
    s.group.begin = Nanos::from_s(1'000'100);
    b.h.set_unix_time(Nanos::from_s(1'000'000));
    ck_assert(b.h.submit(s, Nanos::from_s(1'000'000), b.out).has_value());
    ck_assert(b.reported() && !b.reported()->waits_for.empty());
    b.wait(Nanos::from_s(50));  // the wall clock stands in this test: it is still to wait
    ck_assert(!b.reported());
    b.h.set_unix_time(Nanos::from_s(1'000'090));
    Bench later;
    later.now = b.now;
    later.h.set_unix_time(Nanos::from_s(1'000'090));
    later.h.load(b.job());
    later.h.restarted(later.now, later.out);
    later.wait(Nanos::from_s(9));
    ck_assert(!later.reported());
    later.h.set_unix_time(Nanos::from_s(1'000'100));
    later.wait(Nanos::from_s(1));
    ck_assert(later.reported() && later.reported()->waits_for.empty());
}
END_TEST

namespace {

constexpr Nanos unix_begin = Nanos::from_s(1'000'000);

// A place from second 100 on, for 100 seconds.
Bench with_place(bool holds, const char* resources) {
    Bench b;
    Submission s;
    s.spec.launch.argv = {"/bin/job"};
    s.terms.max_price = Money::units(1);
    s.terms.booking =
        Booking{unix_begin + Nanos::from_s(100), Nanos::from_s(100), false, holds, {}};
    s.terms.resources = resources;
    b.h.set_unix_time(unix_begin);
    ck_assert(b.h.submit(s, b.now, b.out).has_value());
    return b;
}

// The clock on the wall comes to that second, and the home looks.
Bench& comes_to(Bench& b, int64_t second) {
    b.h.set_unix_time(unix_begin + Nanos::from_s(second));
    return b.wait(minute);
}

void notes_end(Bench& b, int64_t second) {
    JobNote note;
    note.id = id;
    note.place_ends = unix_begin + Nanos::from_s(second);
    b.h.note(note, b.now, b.out);
}

}  // namespace

START_TEST(what_was_sold_with_its_time_ends_by_the_clock_whatever_it_has_run) {
    const struct {
        bool holds;
        const char* resources;
        bool ends;
    } rows[] = {{true, "", true}, {false, "gpu=1", true}, {false, "", false}};
    for (const auto& row : rows) {
        Bench b = with_place(row.holds, row.resources);
        comes_to(b, 110);
        run_on(b, "n2", 100, 1);
        ck_assert(b.job().phase == JobPhase::running);
        // Most of the time it does not run.
        b.suspend().event("n2", 1, GuestState::frozen);
        comes_to(b, 199);
        ck_assert(!is_ended(b));
        comes_to(b, 200);
        ck_assert(is_ended(b) == row.ends);
        if (row.ends) ck_assert(b.job().ended_for.code == CauseCode::place_over);
        if (row.ends) ck_assert_text(std::string(b.job().ended_for), "its place of 100s is over");
    }
}
END_TEST

START_TEST(the_end_that_the_market_has_sold_holds_also_for_a_home_that_restarts) {
    Bench b = with_place(true, "");
    run_on(b, "n2", 100, 1);
    notes_end(b, 300);
    comes_to(b, 200);
    ck_assert(!is_ended(b));
    Bench later = b.again();
    later.h.set_unix_time(unix_begin + Nanos::from_s(299));
    later.event("n2", 1, GuestState::running).wait(minute);
    ck_assert(!is_ended(later));
    comes_to(later, 300);
    ck_assert(is_ended(later));
    // It was given less.
    notes_end(b, 210);
    comes_to(b, 210);
    ck_assert(is_ended(b));
}
END_TEST

UNIT_SUITE(home_time_limits, what_was_sold_with_its_time_ends_by_the_clock_whatever_it_has_run,
           the_end_that_the_market_has_sold_holds_also_for_a_home_that_restarts,
           a_job_that_is_to_begin_later_waits_until_then_although_its_home_restarts,
           a_job_ends_when_it_has_run_its_time_and_waits_and_freezes_do_not_count,
           a_limit_at_a_speed_counts_by_the_speed_of_each_node,
           a_signal_warns_once_before_and_more_time_takes_the_end_away,
           cpu_time_is_asked_for_when_it_may_be_used_up,
           a_job_that_fails_is_run_again_after_a_pause_as_often_as_was_said,
           only_the_failures_that_were_named_count, a_job_that_is_cancelled_in_the_pause_ends);
