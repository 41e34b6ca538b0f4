// SPDX-License-Identifier: GPL-2.0-or-later
// HomeLeases, HomeCheckpoints and splicing by themselves.
#include "agentd/core/home_checkpoints.hpp"
#include "agentd/core/home_clock.hpp"
#include "agentd/core/home_leases.hpp"
#include "agentd/core/home_splice.hpp"
#include "agentd/core/lease.hpp"
#include "tests/unit/home_rig.hpp"

using namespace souk;
using namespace souk::unit;

namespace {

constexpr Nanos s(int64_t n) { return Nanos::from_s(n); }
constexpr Nanos lease = s(80);

// A job that runs on n2, which keeps to its lease.
HomeJob leased(const HomeRig& rig) {
    HomeJob job = rig.running();
    job.spec.lease = lease;
    job.leased = true;
    return job;
}

HomeCheckpoints checkpoints(Nanos every = s(100)) { return HomeCheckpoints({every, s(50), "a:1"}); }

GuestEvent kept(GuestState state, uint64_t epoch) {
    GuestEvent e = HomeRig::event(state, epoch);
    e.image_bytes = 1'000;
    return e;
}

}  // namespace

// -------------------------------------------------------------------------------------------------
// leases

START_TEST(a_lease_counts_from_the_last_heartbeat_that_was_answered) {
    HomeRig rig;
    HomeLeases leases;
    const HomeJob job = leased(rig);
    leases.begin(rig.now);
    ck_assert(leases.due(job) == rig.now + home_waits(lease));
    rig.now += s(30);
    leases.answered("n2", rig.now);
    ck_assert(leases.due(job) == rig.now + home_waits(lease));
    leases.answered("n3", rig.now + s(1));
    leases.answered("n2", rig.now - s(5));  // an older one takes nothing back
    ck_assert(leases.due(job) == rig.now + home_waits(lease));
}
END_TEST

START_TEST(only_what_may_run_elsewhere_without_this_home_has_a_lease_to_end) {
    HomeRig rig;
    HomeLeases leases;
    leases.begin(rig.now);
    HomeJob job = leased(rig);
    job.leased = false;
    ck_assert(leases.due(job) == Nanos::never());
    job = leased(rig);
    job.phase = JobPhase::frozen;  // an image
    ck_assert(leases.due(job) == Nanos::never());
    job.in_place = true;  // its processes
    ck_assert(leases.due(job) != Nanos::never());
    job = leased(rig);
    job.phase = JobPhase::thawing;
    job.step = MoveStep::transfer;
    job.from_frozen = true;
    ck_assert(leases.due(job) == Nanos::never());
    // A released job is at its destination, so its lease there counts.
    job.step = MoveStep::release;
    job.to = {"n3", "n3:1"};
    ck_assert(leases.due(job) == Nanos::never());
    job.to_leased = true;
    leases.answered("n3", rig.now + s(9));
    ck_assert(leases.due(job) == rig.now + s(9) + home_waits(lease));
    job.phase = JobPhase::finished;
    ck_assert(leases.due(job) == Nanos::never());
}
END_TEST

START_TEST(a_node_says_itself_that_it_keeps_to_a_lease_and_this_node_needs_none) {
    HomeRig rig;
    HomeLeases leases;
    HomeJob job = leased(rig);
    job.leased = false;
    GuestEvent e = HomeRig::event(GuestState::starting);
    e.leased = true;
    leases.note(job, "n2", e, rig.turn());
    ck_assert(!job.leased);  // until it runs it is the guest's alone
    e.state = GuestState::running;
    leases.note(job, "n2", e, rig.turn());
    ck_assert(job.leased && !job.to_leased);
    ck_assert_text(rig.text(), "p");
    leases.note(job, "n2", e, rig.turn());
    ck_assert_text(rig.text(), "");
    e.epoch = {2};  // the candidate's
    leases.note(job, "n3", e, rig.turn());
    ck_assert(job.to_leased);
    HomeJob here = rig.running();
    here.spec.lease = lease;
    here.at.node = "n1";
    e.epoch = {1};
    leases.note(here, "n1", e, rig.turn());
    ck_assert(!here.leased);
}
END_TEST

START_TEST(when_a_lease_is_over_the_node_counts_as_lost_if_there_is_something_to_go_on_from) {
    HomeRig rig;
    HomeLeases leases;
    leases.begin(rig.now);
    HomeJob job = leased(rig);
    job.spec.restart = true;
    rig.now = leases.due(job) + s(1);
    const Cause over = leases.over(job, true, rig.turn());
    ck_assert_text(over, "node n2 was not heard from for 83 s");
    ck_assert(over.code == CauseCode::node_not_heard);
    ck_assert_text(rig.text(), "");
    ck_assert(leases.is_silent("n2") && !leases.is_silent("n3"));
    // The job is charged until its lease stopped it, not until now.
    ck_assert(HomeClock::run_time(job, rig.now) == home_waits(lease));
    leases.heard("n2");
    ck_assert(!leases.is_silent("n2"));
}
END_TEST

START_TEST(else_it_is_its_nodes_alone_which_is_said_once_until_it_is_heard_again) {
    HomeRig rig;
    HomeLeases leases;
    leases.begin(rig.now);
    HomeJob job = leased(rig);
    rig.now = leases.due(job);
    ck_assert_text(leases.over(job, false, rig.turn()), "");
    ck_assert_text(rig.text(), "P");
    ck_assert_int_eq(rig.reports(), 1);
    ck_assert(!HomeClock::runs(job));
    ck_assert(leases.due(job) == Nanos::never());
    rig.now += s(1);
    leases.answered("n2", rig.now);
    ck_assert(leases.due(job) == rig.now + home_waits(lease));
    ck_assert(leases.runs_again(job) && !leases.runs_again(job));
}
END_TEST

START_TEST(a_stretch_ends_where_the_lease_did_however_late_that_is_seen) {
    HomeRig rig;
    HomeLeases leases;
    leases.begin(rig.now);
    HomeJob job = leased(rig);
    const Nanos end = leases.due(job);
    leases.end_stretch(job, end);
    ck_assert(HomeClock::runs(job));
    leases.end_stretch(job, end + s(1'000));
    ck_assert(!HomeClock::runs(job) && job.stats.run_time == end - rig.now);
    HomeJob free = rig.running();
    leases.end_stretch(free, end + s(1'000));
    ck_assert(HomeClock::runs(free));
}
END_TEST

// -------------------------------------------------------------------------------------------------
// checkpoints

START_TEST(a_checkpoint_is_made_in_a_place_of_its_own_under_an_epoch_of_its_own) {
    HomeRig rig;
    HomeCheckpoints saves = checkpoints();
    HomeJob job = rig.running();
    saves.arm(job, rig.now);
    ck_assert(saves.due(job) == rig.now + s(100));
    rig.now += s(100);
    saves.tick(job, rig.turn());
    ck_assert_text(rig.text(), "P keep n1.2");
    ck_assert(job.last_epoch == Epoch{2} && job.epoch == Epoch{1});
    ck_assert(HomeCheckpoints::is_kept(job, "n1", {2}) &&
              !HomeCheckpoints::is_whole(job, "n1", {2}));
    saves.from_keeper(job, kept(GuestState::prepared, 2), rig.turn());
    ck_assert_text(rig.text(), "checkpoint n2.1");
    saves.from_keeper(job, kept(GuestState::frozen, 2), rig.turn());
    ck_assert_text(rig.text(), "P");
    ck_assert(HomeCheckpoints::is_whole(job, "n1", {2}) && job.saving.epoch == Epoch{});
    ck_assert(saves.due(job) == rig.now + s(100));
}
END_TEST

START_TEST(the_last_whole_checkpoint_is_kept_until_the_next_is_whole) {
    HomeRig rig;
    HomeCheckpoints saves = checkpoints();
    HomeJob job = rig.running();
    job.checkpoint = {{"n1", "a:1"}, {2}, {}, 5, {}, 0};
    job.last_epoch = {2};
    saves.arm(job, rig.now);
    rig.now += s(100);
    saves.tick(job, rig.turn());
    ck_assert_text(rig.text(), "P keep n1.3");
    ck_assert(job.checkpoint.epoch == Epoch{2});
    // Whatever goes wrong with the new checkpoint, the old one stays.
    for (const GuestState bad : {GuestState::unknown, GuestState::failed, GuestState::killed}) {
        HomeJob other = job;
        saves.from_keeper(other, kept(bad, 3), rig.turn());
        ck_assert_text(rig.text(), "kill n1.3 P");
        ck_assert(other.checkpoint.epoch == Epoch{2} && other.saving.epoch == Epoch{});
    }
    HomeJob ended = job;
    saves.end_saving(ended, rig.turn());
    ck_assert_text(rig.text(), "kill n1.3");
    ck_assert(ended.checkpoint.epoch == Epoch{2});
    // The record with the new one is written after the old one is told to go, in one step; its
    // messages leave when the record is durable.
    saves.from_keeper(job, kept(GuestState::frozen, 3), rig.turn());
    ck_assert_text(rig.text(), "drop n1.2 P");
    ck_assert(job.checkpoint.epoch == Epoch{3});
    ck_assert(job.orphans == std::vector<Orphan>({{{"n1", "a:1"}, {2}}}));
}
END_TEST

START_TEST(one_that_takes_too_long_fails_and_why_is_said_once) {
    HomeRig rig;
    HomeCheckpoints saves = checkpoints();
    HomeJob job = rig.running();
    for (int round = 0; round < 2; ++round) {
        saves.arm(job, rig.now);
        rig.now = saves.due(job);
        saves.tick(job, rig.turn());
        ck_assert(saves.due(job) == rig.now + s(50));
        rig.now += s(50);
        saves.tick(job, rig.turn());
        ck_assert_text(saves.trouble(job), "it took too long");
        ck_assert_text(rig.said(), round == 0 ? "no checkpoint: it took too long\n" : "");
        ck_assert_text(job.comment, "no checkpoint: it took too long");
    }
    rig.now = saves.due(job);
    saves.tick(job, rig.turn());
    saves.from_keeper(job, kept(GuestState::frozen, job.saving.epoch.n), rig.turn());
    ck_assert_text(saves.trouble(job), "");
    ck_assert_text(job.comment, "");
}
END_TEST

START_TEST(none_is_begun_of_what_does_not_run_or_has_one_under_way) {
    HomeRig rig;
    HomeCheckpoints saves = checkpoints({});
    HomeJob job = rig.running();
    saves.arm(job, rig.now);
    ck_assert(saves.due(job) == Nanos::never());  // nobody asks for one
    job.spec.checkpoint_every = s(7);
    saves.arm(job, rig.now);
    ck_assert(saves.due(job) == rig.now + s(7));
    saves.arm(job, rig.now + s(3));
    ck_assert(saves.due(job) == rig.now + s(7));
    rig.now += s(7);
    HomeJob stands = job;
    stands.running_since = Nanos::never();
    saves.tick(stands, rig.turn());
    ck_assert_text(rig.text(), "");
    ck_assert(saves.due(job) == rig.now + s(7));  // in a while
    saves.disarm(job);
    ck_assert(saves.due(job) == Nanos::never());
    job.phase = JobPhase::moving;
    saves.arm(job, rig.now);
    ck_assert(saves.due(job) == Nanos::never());
}
END_TEST

START_TEST(where_other_nodes_cannot_reach_this_one_none_is_begun) {
    HomeRig rig;
    HomeCheckpoints saves({s(10), s(50), "", false});
    HomeJob job = rig.running();
    saves.arm(job, rig.now);
    rig.now += s(10);
    saves.tick(job, rig.turn());
    ck_assert_text(rig.text(), "P");
    ck_assert(saves.trouble(job).starts_with("its home does not know at which address n2"));
    saves.own_address("a:2");
    rig.now = saves.due(job);
    saves.tick(job, rig.turn());
    ck_assert_text(rig.text(), "P keep n1.2");
    ck_assert_text(job.saving.peer.address, "a:2");
}
END_TEST

START_TEST(a_job_goes_back_to_its_checkpoint_or_begins_anew) {
    HomeRig rig;
    HomeJob job = leased(rig);
    job.checkpoint = {{"n1", "a:1"}, {2}, {}, 5, {}, 0};
    HomeCheckpoints::go_back(job, "node n2 is lost", rig.turn());
    ck_assert_text(rig.text(), "P kill n2.1");
    ck_assert(job.phase == JobPhase::frozen && job.at.node == "n1" && job.epoch == Epoch{2});
    ck_assert(!job.leased && job.splice.due && job.stats.resumes == 1);
    ck_assert(job.checkpoint.epoch == Epoch{2});  // it can be gone back to again
    HomeJob anew = rig.running();
    HomeCheckpoints::go_back(anew, "node n2 is lost", rig.turn());
    ck_assert(anew.phase == JobPhase::waiting && anew.at.node.empty() && anew.splice.due);
    ck_assert(anew.orphans.size() == 1);
}
END_TEST

START_TEST(a_damaged_checkpoint_is_dropped) {
    HomeRig rig;
    HomeCheckpoints saves = checkpoints();
    HomeJob job = rig.running();
    job.checkpoint = {{"n1", "a:1"}, {2}, {}, 5, {}, 0};
    saves.from_keeper(job, kept(GuestState::frozen, 2), rig.turn());
    ck_assert_text(rig.text(), "");
    saves.from_keeper(job, kept(GuestState::unknown, 2), rig.turn());
    ck_assert_text(rig.text(), "drop n1.2 P");
    ck_assert(job.checkpoint.epoch == Epoch{});
}
END_TEST

// -------------------------------------------------------------------------------------------------
// splicing

START_TEST(streams_part_where_the_checkpoint_stood_and_the_text_comes_between) {
    HomeJob job = HomeRig::waiting();
    job.checkpoint = {{"n1", "a:1"}, {2}, {}, 5, {100, 40}, 7};
    job.splice.due = true;
    const uint64_t ends[2] = {130, 40};
    splice(job, ends, 9);
    const Splice& at = job.splice;
    ck_assert(!at.due && at.at == 40);  // on stderr
    ck_assert(at.text.find("30 bytes of stdout and 0 of stderr") != std::string::npos);
    // Byte 100 of stdout comes again, behind the 130 bytes that are there. On stderr only the text
    // comes between.
    ck_assert_uint_eq(at.shift[0], 30);
    ck_assert_uint_eq(at.shift[1], at.text.size());
    ck_assert_uint_eq(at.input_shift, 2);
}
END_TEST

START_TEST(a_second_splice_counts_from_the_first) {
    HomeJob job = HomeRig::waiting();
    job.spec.launch.tty = true;
    job.checkpoint = {{"n1", "a:1"}, {2}, {}, 5, {100, 0}, 0};
    const uint64_t first[2] = {150, 0};
    splice(job, first, 0);
    const uint64_t text = job.splice.text.size();
    ck_assert_uint_eq(job.splice.shift[0], 50 + text);
    // The job has written 20 bytes more, which lie at 150 + text.
    const uint64_t second[2] = {150 + text + 20, 0};
    splice(job, second, 0);
    ck_assert(job.splice.text.find(" 20 bytes were written") != std::string::npos);
    ck_assert_uint_eq(job.splice.shift[0], second[0] + job.splice.text.size() - 100);
}
END_TEST

UNIT_SUITE(home_leases, a_lease_counts_from_the_last_heartbeat_that_was_answered,
           only_what_may_run_elsewhere_without_this_home_has_a_lease_to_end,
           a_node_says_itself_that_it_keeps_to_a_lease_and_this_node_needs_none,
           when_a_lease_is_over_the_node_counts_as_lost_if_there_is_something_to_go_on_from,
           else_it_is_its_nodes_alone_which_is_said_once_until_it_is_heard_again,
           a_stretch_ends_where_the_lease_did_however_late_that_is_seen);
UNIT_SUITE(home_checkpoints, a_checkpoint_is_made_in_a_place_of_its_own_under_an_epoch_of_its_own,
           the_last_whole_checkpoint_is_kept_until_the_next_is_whole,
           one_that_takes_too_long_fails_and_why_is_said_once,
           none_is_begun_of_what_does_not_run_or_has_one_under_way,
           where_other_nodes_cannot_reach_this_one_none_is_begun,
           a_job_goes_back_to_its_checkpoint_or_begins_anew, a_damaged_checkpoint_is_dropped);
UNIT_SUITE(home_splice, streams_part_where_the_checkpoint_stood_and_the_text_comes_between,
           a_second_splice_counts_from_the_first);
