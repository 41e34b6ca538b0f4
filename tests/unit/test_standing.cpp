// SPDX-License-Identifier: GPL-2.0-or-later
// Jobs that stand in memory by an order: the Guest and the Home by hand. The Market is in
// test_market_standing.cpp, the time that a job stands in test_stop_record.cpp.
#include "agentd/core/guest.hpp"
#include "agentd/core/home.hpp"
#include "market/core/standing.hpp"

#include "tests/unit/guest_bench.hpp"
#include "tests/unit/home_bench.hpp"

using namespace souk;

namespace {

struct Host : unit::guests::Bench {
    Nanos now = Nanos::from_s(1);
    explicit Host(bool can_stop = true, OwnerPolicy policy = {}) {
        g = Guest(16, can_stop, policy);
        wait({});
    }
    Host& wait(Nanos span) {
        now += span;
        out.clear();
        (void)g.tick(now, out);
        return *this;
    }
    Host& freeze(bool stand) {
        GuestCommand c;
        c.id = unit::guests::job;
        c.epoch = {1};
        c.verb = GuestVerb::freeze;
        c.or_stand = true;
        c.stand = stand;
        out.clear();
        g.command("n1", c, out);
        return *this;
    }
    Host& stood(const char* why = "") {
        ended(guest::Stood{why});
        return *this;
    }
    Host& stands() {
        running();
        freeze(true);
        return stood();
    }
    const GuestEvent& told() const {
        for (const auto& o : out)
            if (const auto* t = std::get_if<guest::ToHome>(&o))
                if (const auto* e = std::get_if<GuestEvent>(&t->message)) return *e;
        ck_abort_msg("nothing was told");
    }
    // The record as it was written last.
    GuestJob written() const {
        const GuestJob* last = nullptr;
        for (const auto& o : out)
            if (const auto* p = std::get_if<guest::Persist>(&o)) last = &p->job;
        ck_assert(last);
        return *last;
    }
};

}  // namespace

START_TEST(a_word_stops_a_job_in_memory_and_a_word_lets_it_go_on) {
    Host h;
    h.running();
    ck_assert_text(h.freeze(true).text(), "P:running stand");
    ck_assert(h.written().in_place && h.written().by_order);
    ck_assert_text(h.stood().text(), ">dumping");
    ck_assert(h.told().in_place && h.told().cannot_move.empty() && h.told().why.empty());
    ck_assert_text(h.freeze(true).text(), ">dumping");  // it is so already
    ck_assert_uint_eq(h.g.here("n9").running, 0);
    ck_assert_uint_eq(h.g.here("n9").in_memory, 1);
    // The guest never dumps the job by itself.
    ck_assert_text(h.wait(Nanos::from_s(100'000)).text(), "");
    ck_assert_text(h.command(GuestVerb::commit).text(), ">dumping");  // no copy of anything
    ck_assert_text(h.command(GuestVerb::resume).text(), "P:running undo_dump");
    ck_assert(!h.written().in_place && !h.written().by_order);
    ck_assert_text(h.undone().text(), ">running");
    // A job that nothing can stop, or whose stop fails, is frozen to disk.
    Host v1(false);
    v1.running();
    ck_assert_text(v1.freeze(true).text(), "ready_criu/disk");
    Host fails;
    fails.running();
    fails.freeze(true);
    ck_assert_text(fails.stood("no group").text(), "P:running ready_criu/disk");
}
END_TEST

START_TEST(what_stands_goes_to_disk_by_a_word_and_stands_on_when_that_fails) {
    Host h;
    h.stands();
    ck_assert_text(h.freeze(false).text(), "P:running undo_dump");
    ck_assert(!h.written().in_place && !h.written().by_order);
    ck_assert_text(h.undone().text(), "ready_criu/disk");
    ck_assert_text(h.criu_ready().text(), "dump_to_disk");
    ck_assert_text(h.dump_held().text(), "P:frozen finish_dump");
    ck_assert_text(h.gone().text(), ">frozen");
    ck_assert(!h.told().in_place);
    // A job that could not be frozen to disk is treated like any other that cannot be dumped: it
    // stands again.
    Host fails;
    fails.stands();
    fails.freeze(false);
    fails.undone();
    fails.criu_ready();
    ck_assert_text(fails.ended(guest::DumpFailed{"a queue is open", true}).text(),
                   "P:running stand");
    ck_assert(fails.written().in_place && !fails.written().by_order);
    ck_assert_text(fails.stood().text(), ">dumping(a queue is open)");
    ck_assert(fails.told().in_place && fails.told().cannot_move == "a queue is open");
    ck_assert_text(fails.wait(Nanos::from_s(11)).text(), "P:running undo_dump");  // once more
    // The home lets the job go on, stops it, or it ends in the middle of the freeze.
    Host goes_on;
    goes_on.stands();
    goes_on.freeze(false);
    ck_assert_text(goes_on.command(GuestVerb::resume).text(), "");
    ck_assert_text(goes_on.undone().text(), ">running");
    Host stays;
    stays.stands();
    stays.freeze(false);
    stays.undone();
    ck_assert_text(stays.freeze(true).text(), "");
    ck_assert_text(stays.criu_ready().text(), "undo_dump");
    ck_assert_text(stays.undone().text(), "P:running stand");
    ck_assert_text(stays.stood().text(), ">dumping");
    ck_assert(stays.told().in_place && stays.told().cannot_move.empty());
    Host killed;
    killed.stands();
    ck_assert_text(killed.command(GuestVerb::kill).text(), "finish_dump");
}
END_TEST

START_TEST(a_dump_under_way_is_undone_for_a_stop_and_one_that_is_whole_is_kept) {
    // The dump is for a move. The move is given up, and the job stops.
    Host h;
    h.running();
    h.command(GuestVerb::prepare_dump);
    ck_assert_text(h.criu_ready().text(), ">dump_ready");
    ck_assert_text(h.freeze(true).text(), "undo_dump");
    ck_assert_text(h.undone().text(), "P:running stand");
    ck_assert_text(h.stood().text(), ">dumping");
    // The dump is to disk, and the job goes there.
    Host disk;
    disk.running();
    disk.freeze(false);
    disk.criu_ready();
    ck_assert_text(disk.freeze(true).text(), "");
    ck_assert_text(disk.dump_held().text(), "P:frozen finish_dump");
    // The home lets the job go on before it stands.
    Host early;
    early.running();
    early.freeze(true);
    ck_assert_text(early.command(GuestVerb::resume).text(), "");
    ck_assert_text(early.stood().text(), "P:running undo_dump");
    ck_assert_text(early.undone().text(), ">running");
}
END_TEST

START_TEST(a_restart_of_the_daemon_finds_it_standing_and_its_owner_gets_rid_of_it) {
    Guest::Found found;
    found.capsule_alive = found.job_alive = found.held_by_dump = true;
    GuestJob record;
    record.key = unit::guests::key;
    record.state = GuestState::running;
    record.in_place = record.by_order = true;
    Host h;
    h.end([&](Guest& m, guest::Outputs& o) { m.recovered(record, found, o); });
    h.command(GuestVerb::query);
    ck_assert(h.told().in_place && h.told().cannot_move.empty());
    ck_assert_text(h.command(GuestVerb::resume).text(), "P:running undo_dump");
    OwnerPolicy policy;
    policy.leave = Nanos::from_s(5);
    Host left(true, policy);
    left.stands();
    left.end([](Guest& m, guest::Outputs& o) { m.set_accepting(false, "off", o); });
    ck_assert_text(left.wait(Nanos::from_s(4)).text(), "");
    ck_assert_text(left.wait(Nanos::from_s(1)).text(), "P:running undo_dump");
    ck_assert_text(left.undone().text(), "ready_criu/disk");
    left.criu_ready();
    ck_assert_text(left.dump_held().text(), "P:frozen finish_dump");
    // No job goes on while the owner uses the node, whatever the home says.
    Host used;
    used.stands();
    used.end([](Guest& m, guest::Outputs& o) {
        m.set_paused({CauseCode::owner_uses, "its owner uses it"}, o);
    });
    ck_assert_text(used.text(), "pause");
    used.ended(guest::Paused{true});
    used.command(GuestVerb::resume);
    used.undone();
    ck_assert(used.told().state == GuestState::running && !used.told().paused.empty());
}
END_TEST

START_TEST(a_home_has_it_stopped_frozen_or_let_go_on_and_does_not_charge_for_it) {
    unit::Bench b;
    b.running();
    b.now += Nanos::from_s(5);
    ck_assert_text(b.stop().text(), "P freeze n2.1/stand");
    ck_assert_text(b.in_place("n2", 1, "").text(), "P");
    ck_assert(b.job().phase == JobPhase::frozen && b.job().in_place);
    ck_assert(b.reported() && b.reported()->in_place && b.reported()->cannot_move.empty());
    ck_assert_int_eq(b.job().stats.run_time.ns, Nanos::from_s(5).ns);
    ck_assert_text(b.stop().text(), "");  // it is so
    b.now += Nanos::from_s(100);
    ck_assert_text(b.run_on("n2").text(), "P resume n2.1");
    b.now += Nanos::from_ms(7);
    b.event("n2", 1, GuestState::running);
    ck_assert_int_eq(b.job().stats.run_time.ns, Nanos::from_s(5).ns);
    const StoryStep& step = b.job().story.steps().back();
    ck_assert(step.what == StoryStep::What::resumed && step.total == Nanos::from_ms(7));
    ck_assert_uint_eq(step.count, 1);
    // The job goes to disk from where it stands. Its memory counts until it is there.
    b.stop().in_place("n2", 1, "");
    ck_assert_text(b.suspend().text(), "P freeze n2.1");
    ck_assert(b.job().phase == JobPhase::freezing);
    ck_assert_text(b.in_place("n2", 1, "").text(), "freeze n2.1");  // it has not arrived
    b.event("n2", 1, GuestState::dumping);
    ck_assert(b.reported()->in_place);
    ck_assert_text(b.event("n2", 1, GuestState::frozen).text(), "P");
    ck_assert(b.job().phase == JobPhase::frozen && !b.job().in_place);
    ck_assert_uint_eq(b.job().stats.freezes, 1);
    ck_assert_int_eq(b.job().stats.run_time.ns, Nanos::from_s(5).ns);
}
END_TEST

// The market has it frozen to disk first; by hand, or by an older market, it may come to this.
START_TEST(a_home_that_is_to_move_what_stands_lets_it_run_and_moves_it) {
    unit::Bench b;
    b.running().stop().in_place("n2", 1, "");
    ck_assert_text(b.run_on("n3").text(), "P prepare n3.2 prepare_dump n2.1");
    ck_assert(b.job().phase == JobPhase::moving && !b.job().in_place);
    b.event("n2", 1, GuestState::dump_ready);
    ck_assert_text(b.event("n3", 2, GuestState::failed, "no room").text(),
                   "!n3 P kill n3.2 resume n2.1");
    ck_assert(b.job().phase == JobPhase::running);
}
END_TEST

START_TEST(a_restart_of_its_home_keeps_it_standing_and_a_stop_that_was_under_way_ends_on_disk) {
    unit::Bench b;
    b.running().stop();
    unit::Bench midway = b.again();
    ck_assert_text(midway.up("n2").text(), "freeze n2.1");
    ck_assert_text(midway.in_place("n2", 1, "").text(), "P");  // it was stopped before
    ck_assert(midway.job().in_place);
    b.in_place("n2", 1, "");
    unit::Bench again = b.again();
    ck_assert(again.job().phase == JobPhase::frozen && again.job().in_place);
    ck_assert_text(again.up("n2").text(), "query n2.1");
    ck_assert_text(again.in_place("n2", 1, "").text(), "");
    ck_assert_text(again.run_on("n2").text(), "P resume n2.1");
    // The node has forgotten the job, so the running copy is gone.
    ck_assert_text(again.event("n2", 1, GuestState::unknown).text(), "P drop n2.1");
}
END_TEST

// The kernel has them pending in a frozen group: they come when it goes on, or end it at once.
START_TEST(a_signal_to_a_job_that_stands_is_not_lost_and_one_that_ends_it_does_so_at_once) {
    Host h;
    h.stands();
    ck_assert_text(h.command(GuestVerb::signal).text(), "signal");
    // The job was told to go on, but does not do so yet.
    h.command(GuestVerb::resume);
    ck_assert_text(h.command(GuestVerb::signal).text(), "");
    ck_assert_text(h.undone().text().substr(0, 6), "signal");
    ck_assert_text(h.command(GuestVerb::signal).text(), "signal");
    Host killed;
    killed.stands();
    ck_assert_text(killed.exited(9).text(), ">exited");
    // A job that is on its way to disk takes no signal.
    Host disk;
    disk.stands();
    disk.freeze(false);
    ck_assert_text(disk.command(GuestVerb::signal).text(), "");
    unit::Bench b;
    b.running().stop();
    const auto signal = [](unit::Bench& at, int number) {
        at.out.clear();
        return at.h.signal(unit::id, number, at.out).has_value();
    };
    ck_assert(!signal(b, 15));  // who asked is told
    b.in_place("n2", 1, "");
    ck_assert(signal(b, 15));
    ck_assert_text(b.text(), "signal n2.1");
    ck_assert_text(b.event("n2", 1, GuestState::exited, "", 15).text(), "P drop n2.1");
    ck_assert(b.job().phase == JobPhase::finished && b.job().wait_status == 15);
    unit::Bench c;
    c.running().stop().in_place("n2", 1, "");
    ck_assert_text(c.cancel().text(), "P kill n2.1");
}
END_TEST

START_TEST(who_goes_to_disk_are_the_lowest_bids_and_of_equal_ones_the_last_that_stopped) {
    using market::StandingJobs;
    const auto one = [](uint64_t job, int64_t bid, int64_t since, int64_t mb) {
        return StandingJobs::One{job, Money::units(bid), Nanos::from_s(since), mb};
    };
    const std::vector<StandingJobs::One> all = {one(1, 9, 5, 10), one(2, 3, 1, 10),
                                                one(3, 3, 2, 10), one(4, 7, 9, 10)};
    ck_assert(StandingJobs::who_goes(all, 0).empty());
    ck_assert(StandingJobs::who_goes(all, 1) == std::vector<uint64_t>{3});
    ck_assert(StandingJobs::who_goes(all, 25) == (std::vector<uint64_t>{3, 2, 4}));
    ck_assert_uint_eq(StandingJobs::who_goes(all, 1'000).size(), 4);
    // The suspensions on record are learned from, each of them once.
    StandingJobs s;
    for (uint64_t job = 1; job <= 40; ++job) {
        s.suspended(job, Nanos::from_s(100), Nanos::from_s(10));
        s.wanted(job, Nanos::from_s(160));
        s.won(job, Nanos::from_s(900));
        ck_assert(!s.knows(job));
    }
    ck_assert(s.patience(Nanos::from_s(10)) < Nanos::from_s(60));
}
END_TEST

UNIT_SUITE(standing, a_word_stops_a_job_in_memory_and_a_word_lets_it_go_on,
           what_stands_goes_to_disk_by_a_word_and_stands_on_when_that_fails,
           a_dump_under_way_is_undone_for_a_stop_and_one_that_is_whole_is_kept,
           a_restart_of_the_daemon_finds_it_standing_and_its_owner_gets_rid_of_it,
           a_home_has_it_stopped_frozen_or_let_go_on_and_does_not_charge_for_it,
           a_home_that_is_to_move_what_stands_lets_it_run_and_moves_it,
           a_restart_of_its_home_keeps_it_standing_and_a_stop_that_was_under_way_ends_on_disk,
           a_signal_to_a_job_that_stands_is_not_lost_and_one_that_ends_it_does_so_at_once,
           who_goes_to_disk_are_the_lowest_bids_and_of_equal_ones_the_last_that_stopped);
