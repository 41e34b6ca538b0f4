// SPDX-License-Identifier: GPL-2.0-or-later
// LeaseWatch over a control group that the test plays: what stops a job, and what lets it go on.
#include "agentd/cell/lease_watch.hpp"

#include <unistd.h>

#include <vector>

#include "kernel/sys/process/init_protocol.h"
#include "tests/unit/loop_fixture.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {

struct Group final : JobGroup {
    bool exists = true, refuses = false;
    mutable bool stands = false;
    mutable int thaws = 0;
    bool there() const override { return exists; }
    Status freeze(Nanos) const override { return stop(); }
    Status stop() const override {
        if (refuses) return tl::unexpected(Error{0, "no"});
        stands = true;
        return {};
    }
    Status thaw() const override {
        ++thaws;
        stands = false;
        return {};
    }
};

struct Watched {
    Loop loop = open_loop();
    Log log{{.level_max = Level::error, .program = "test_lease_watch"}};
    TempDir dir;
    Group group;
    std::vector<Nanos> told;  // to PID 1
    int lapses = 0;
    LeaseWatch lease{loop,
                     JobLog(log, JobId{"n1", 1}, Epoch{1}),
                     group,
                     dir.fd,
                     {.tell_init = [this](Nanos until) { told.push_back(until); },
                      .lapsed = [this](Nanos) { ++lapses; }}};
    bool marked_paused() const { return ::faccessat(dir.fd.get(), SOUK_PAUSED_NAME, F_OK, 0) == 0; }
    bool marked() const { return ::faccessat(dir.fd.get(), SOUK_LAPSED_NAME, F_OK, 0) == 0; }
    void lapse() {
        lease.keep(Loop::now(), false);
        UNTIL(loop, lapses > 0);
    }
};
const Nanos far = Nanos::from_s(600);

START_TEST(a_job_stands_at_its_deadline_and_a_new_lease_lets_it_go_on) {
    Watched w;
    w.lapse();
    ck_assert(w.group.stands && w.marked() && w.lease.lapsed() && !w.lease.stopped());
    w.lease.keep(Loop::now() + far, false);
    ck_assert(!w.group.stands && !w.marked() && !w.lease.lapsed());
    ck_assert_uint_eq(w.told.size(), 2);
}
END_TEST

START_TEST(a_lease_that_says_so_leaves_the_job_where_the_last_one_stopped_it) {
    Watched w;
    w.lapse();
    w.lease.keep(Loop::now() + far, true);
    ck_assert(w.group.stands && w.lease.lapsed());
    ck_assert(w.lease.let_run());
    ck_assert(!w.group.stands && !w.lease.lapsed() && !w.marked());
}
END_TEST

START_TEST(what_a_dump_has_stopped_does_not_go_on_past_its_lease) {
    Watched w;
    OK(w.lease.stop_for_dump());
    w.lapse();
    ck_assert(!w.marked());  // the dump holds it
    ck_assert(!w.lease.let_run());
    ck_assert(w.group.stands && w.marked() && w.lease.lapsed() && !w.lease.stopped());
    w.lease.keep(Loop::now() + far, false);
    ck_assert(!w.group.stands && !w.marked());
}
END_TEST

START_TEST(a_new_lease_does_not_let_go_what_a_dump_has_stopped) {
    Watched w;
    OK(w.lease.stop_for_dump());
    w.lease.keep(Loop::now() + far, false);
    ck_assert(w.group.stands && w.lease.stopped() && !w.lease.in_place());
    ck_assert(w.lease.let_run());
    ck_assert(!w.group.stands);
    ck_assert(w.lease.let_run());  // once more: nothing to do
    ck_assert_int_eq(w.group.thaws, 1);
}
END_TEST

START_TEST(the_second_before_a_deadline_counts_as_past_it) {
    Watched w;
    OK(w.lease.stop_for_dump());
    w.lease.keep(Loop::now() + Nanos::from_ms(900), false);
    ck_assert(!w.lease.let_run());
    ck_assert(w.group.stands && w.lease.lapsed());
}
END_TEST

START_TEST(a_stop_by_pid_1_counts_if_the_lease_is_over_and_is_undone_if_it_is_not) {
    Watched w;
    w.lease.keep(Loop::now() + far, false);
    w.group.stands = true;  // by an older deadline, while this daemon slept
    w.lease.stopped_by_init();
    ck_assert(!w.group.stands && w.lapses == 0);
    w.lease.keep(Loop::now() + Nanos::from_ms(500), false);
    w.group.stands = true;
    w.lease.stopped_by_init();
    ck_assert(w.group.stands && w.marked() && w.lapses == 1);
}
END_TEST

START_TEST(a_round_of_memory_that_ends_past_the_lease_leaves_the_job_standing) {
    Watched w;
    OK(w.lease.pause(Nanos::from_ms(100)));
    OK(w.lease.resume());
    ck_assert(!w.group.stands && w.lease.let_run());
    w.lease.keep(Loop::now() + Nanos::from_ms(500), false);
    OK(w.lease.pause(Nanos::from_ms(100)));
    ck_assert(!w.lease.resume());
    ck_assert(w.group.stands && w.lease.lapsed() && w.marked());
}
END_TEST

START_TEST(a_job_that_cannot_be_stopped_in_place_is_not_said_to_stand) {
    Watched w;
    w.group.refuses = true;
    ck_assert(!w.lease.stand());
    ck_assert(!w.lease.stopped());
    w.group.refuses = false;
    OK(w.lease.stand());
    ck_assert(w.lease.stopped() && w.lease.in_place());
    ck_assert(w.lease.let_run() && !w.lease.in_place());
}
END_TEST

START_TEST(the_first_deadline_that_pid_1_knows_counts_after_a_restart_and_no_later_one) {
    Watched w;
    ck_assert(w.lease.found(Loop::now() + far));
    ck_assert(!w.lease.found(Loop::now()));
    w.lease.connected();
    ck_assert_uint_eq(w.told.size(), 1);
}
END_TEST

START_TEST(a_restarted_daemon_finds_what_the_lease_and_what_a_dump_has_stopped) {
    Watched w;
    w.lease.found_stopped(false);
    ck_assert(w.lease.stopped() && !w.lease.in_place() && !w.lease.lapsed());
    Watched after;
    OK(create_file(after.dir.fd.get(), SOUK_LAPSED_NAME, ""));
    after.lease.found_stopped(true);
    ck_assert(after.lease.in_place() && after.lease.lapsed());
    ck_assert(after.lease.let_run());
    ck_assert(!after.marked());
}
END_TEST

START_TEST(a_capsule_that_ends_has_no_deadline) {
    Watched w;
    w.lease.keep(Loop::now() + Nanos::from_ms(20), false);
    w.lease.end();
    w.lease.stopped_by_init();
    (void)w.loop.run_until([] { return false; }, Nanos::from_ms(60));
    ck_assert(!w.group.stands && w.lapses == 0);
    // A node without control groups: nothing can be stopped, and nothing is said.
    Watched none;
    none.group.exists = false;
    none.lease.keep(Loop::now(), false);
    (void)none.loop.run_until([] { return false; }, Nanos::from_ms(30));
    ck_assert(none.lapses == 0);
    OK(none.lease.stop_for_dump());
    ck_assert(!none.lease.stopped());
}
END_TEST

START_TEST(what_the_owner_stops_runs_for_a_dump_alone_and_stands_again_after_it) {
    Watched w;
    OK(w.lease.pause(true));
    ck_assert(w.group.stands && w.marked_paused());
    w.lease.at_dump(true);
    ck_assert(!w.group.stands && !w.marked_paused());  // found so, it is the dump's
    OK(w.lease.stop_for_dump());
    ck_assert(w.group.stands && !w.marked_paused());
    ck_assert(w.lease.let_run());
    ck_assert(!w.group.stands);  // CRIU is not done with it
    w.lease.at_dump(false);
    ck_assert(w.group.stands && w.marked_paused());
    OK(w.lease.pause(false));
    ck_assert(!w.group.stands && !w.marked_paused());
}
END_TEST

START_TEST(what_the_owner_lets_go_on_stands_for_its_dump_and_its_lease_all_the_same) {
    Watched dumped;
    dumped.lease.at_dump(true);
    OK(dumped.lease.stop_for_dump());
    OK(dumped.lease.pause(true));
    OK(dumped.lease.pause(false));
    ck_assert(dumped.group.stands);
    Watched over;
    OK(over.lease.pause(true));
    over.lapse();
    ck_assert(over.marked());
    OK(over.lease.pause(false));
    ck_assert(over.group.stands);
    ck_assert(!over.lease.let_run());
    over.lease.keep(Loop::now() + far, false);
    ck_assert(!over.group.stands);
    // A lease that was renewed meanwhile lets nothing go that the owner holds.
    Watched held;
    OK(held.lease.pause(true));
    held.lapse();
    held.lease.keep(Loop::now() + far, false);
    ck_assert(held.group.stands && held.marked_paused() && !held.marked());
    OK(held.lease.resume());
    ck_assert(held.group.stands);
}
END_TEST

START_TEST(a_restarted_daemon_finds_what_the_owner_has_stopped) {
    Watched before;
    OK(before.lease.pause(true));
    LeaseWatch after{before.loop,
                     JobLog(before.log, JobId{"n1", 1}, Epoch{1}),
                     before.group,
                     before.dir.fd,
                     {.tell_init = [](Nanos) {}, .lapsed = [](Nanos) {}}};
    ck_assert(after.found_paused());
    OK(after.pause(false));
    ck_assert(!before.group.stands && !before.marked_paused());
    Watched refused;
    refused.group.refuses = true;
    ck_assert(!refused.lease.pause(true) && !refused.marked_paused());
}
END_TEST

}  // namespace

UNIT_SUITE(lease_watch, a_job_stands_at_its_deadline_and_a_new_lease_lets_it_go_on,
           a_lease_that_says_so_leaves_the_job_where_the_last_one_stopped_it,
           what_a_dump_has_stopped_does_not_go_on_past_its_lease,
           a_new_lease_does_not_let_go_what_a_dump_has_stopped,
           the_second_before_a_deadline_counts_as_past_it,
           a_stop_by_pid_1_counts_if_the_lease_is_over_and_is_undone_if_it_is_not,
           a_round_of_memory_that_ends_past_the_lease_leaves_the_job_standing,
           a_job_that_cannot_be_stopped_in_place_is_not_said_to_stand,
           the_first_deadline_that_pid_1_knows_counts_after_a_restart_and_no_later_one,
           a_restarted_daemon_finds_what_the_lease_and_what_a_dump_has_stopped,
           what_the_owner_stops_runs_for_a_dump_alone_and_stands_again_after_it,
           what_the_owner_lets_go_on_stands_for_its_dump_and_its_lease_all_the_same,
           a_restarted_daemon_finds_what_the_owner_has_stopped,
           a_capsule_that_ends_has_no_deadline);

}  // namespace souk::unit
