// SPDX-License-Identifier: GPL-2.0-or-later
// A component on the node that holds it: started up to its program, and no further before its home
// says so.
#include "tests/unit/guest_bench.hpp"

using namespace souk;
using namespace souk::unit::guests;

namespace {

struct Held : Bench {
    Held& start() {
        GuestCommand c;
        c.id = job;
        c.epoch = {1};
        c.verb = GuestVerb::start;
        c.spec.hold = true;
        out.clear();
        g.command("n1", c, out);
        return *this;
    }
    Held& held() {
        start();
        ended(guest::CapsuleReady{});
        ended(guest::JobHeld{});
        return *this;
    }
};
GuestJob record(GuestState state) {
    GuestJob r;
    r.key = key;
    r.state = state;
    r.spec.hold = true;
    return r;
}

}  // namespace

START_TEST(a_component_is_held_before_its_program_until_it_is_released) {
    Held b;
    ck_assert_text(b.start().text(), "p:starting create_capsule");
    ck_assert_text(b.ended(guest::CapsuleReady{}).text(), "hold_job");
    ck_assert_text(b.command(GuestVerb::release).text(), ">starting");  // not before it is held
    ck_assert_text(b.ended(guest::JobHeld{}).text(), ">held");
    ck_assert_text(b.command(GuestVerb::query).text(), ">held");
    // The record comes first, because a capsule that is found later may have run the job.
    ck_assert_text(b.command(GuestVerb::release).text(), "P:running release_job");
    ck_assert_text(b.command(GuestVerb::release).text(), ">starting");
    ck_assert_text(b.ended(guest::JobStarted{}).text(), ">running");
}
END_TEST

START_TEST(a_component_that_cannot_start_or_is_not_wanted_leaves_nothing) {
    Held lacks;
    lacks.start().ended(guest::CapsuleReady{});
    ck_assert_text(lacks.ended(guest::JobNotStarted{2, true, "no such program"}).text(),
                   "P:starting kill_capsule");
    ck_assert_text(lacks.gone().text(), "remove E >failed(no such program)");
    Held killed;
    ck_assert_text(killed.held().command(GuestVerb::kill).text(), "kill_capsule");
    ck_assert_text(killed.gone().text(), "P:killed >killed");
    Held owner;  // he needs his machine
    owner.held().end([](Guest& g, guest::Outputs& o) { g.set_accepting(false, {}, o); });
    ck_assert(owner.text().find("kill_capsule") != std::string::npos);
    ck_assert(owner.gone().state() == GuestState::failed);
    Held died;
    ck_assert_text(died.held().gone().text(), "remove E >failed(its capsule ended unexpectedly)");
}
END_TEST

START_TEST(a_restart_ends_what_was_held_and_lets_go_on_what_was_released) {
    Held b;
    Guest::Found found;
    found.capsule_alive = found.job_alive = true;
    b.end(
        [&](Guest& g, guest::Outputs& o) { g.recovered(record(GuestState::starting), found, o); });
    ck_assert_text(b.text(), "kill_capsule");
    Held released;
    released.end(
        [&](Guest& g, guest::Outputs& o) { g.recovered(record(GuestState::running), found, o); });
    ck_assert_text(released.text(), "");
    ck_assert(released.state() == GuestState::running);
}
END_TEST

START_TEST(a_node_does_not_hold_a_component_for_ever) {
    Held b;
    b.held();
    b.end([](Guest& g, guest::Outputs& o) { (void)g.tick(Nanos::from_s(599), o); });
    ck_assert(b.state() == GuestState::held);
    b.end([](Guest& g, guest::Outputs& o) { (void)g.tick(Nanos::from_s(601), o); });
    ck_assert_text(b.text(), "P:starting kill_capsule");
}
END_TEST

namespace {

struct AtCut : Bench {
    bool or_stand = false;
    AtCut& told(GuestVerb verb, Cut cut, uint64_t number = 7) {
        GuestCommand c;
        c.id = job;
        c.epoch = {1};
        c.verb = verb;
        c.cut = cut;
        c.new_epoch = {number};
        c.or_stand = or_stand;
        c.dest = "n1";
        out.clear();
        g.command("n1", c, out);
        return *this;
    }
    AtCut& ready(Cut cut) {
        running();
        told(GuestVerb::prepare_dump, cut);
        criu_ready();
        return *this;
    }
    AtCut& stands(Cut cut) {
        ready(cut).told(cut == Cut::freeze ? GuestVerb::freeze : GuestVerb::checkpoint, cut);
        ended(guest::DumpFroze{});
        dump_held();
        return *this;
    }
    Epoch held_for() const {
        for (const auto& o : out)
            if (const auto* t = std::get_if<guest::ToHome>(&o))
                if (const auto* e = std::get_if<GuestEvent>(&t->message)) return e->held_for;
        return {};
    }
};

}  // namespace

START_TEST(what_is_dumped_at_a_cut_stands_until_its_home_has_decided) {
    AtCut b;
    b.running();
    ck_assert_text(b.told(GuestVerb::prepare_dump, Cut::freeze).text(), "ready_criu/disk");
    ck_assert_text(b.criu_ready().text(), ">dump_ready");
    ck_assert_text(b.told(GuestVerb::freeze, Cut::freeze).text(), "dump_to_disk");
    ck_assert_text(b.ended(guest::DumpFroze{}).text(), ">dumping");
    ck_assert_text(b.ended(guest::DumpFroze{{}, true}).text(), ">dumping");
    // The record comes first: if the stopped job dies now, its image is the job.
    ck_assert_text(b.dump_held().text(), "P:shipped >shipped");
    ck_assert_uint_eq(b.held_for().n, 7);
    ck_assert_text(b.told(GuestVerb::freeze, Cut::freeze).text(), ">shipped");
    ck_assert_text(b.command(GuestVerb::commit).text(), "p:frozen finish_dump");
    ck_assert_text(b.gone().text(), ">frozen");
    AtCut off;
    off.stands(Cut::freeze);
    ck_assert_text(off.command(GuestVerb::resume).text(), "P:running undo_dump");
    ck_assert_text(off.undone().text(), ">running");
    AtCut died;
    died.stands(Cut::freeze);
    ck_assert_text(died.gone().text(), "P:frozen >frozen");
    AtCut fails;
    fails.ready(Cut::freeze).told(GuestVerb::freeze, Cut::freeze);
    ck_assert_text(fails.ended(guest::DumpFailed{"no room", false}).text(), ">running(no room)");
}
END_TEST

// Stopped here it could go on here alone, and its gang with it.
START_TEST(who_cannot_be_dumped_at_a_cut_goes_on_twice_and_stands_then) {
    AtCut b;
    b.or_stand = true;
    b.running();
    const auto begins = [&] {
        ck_assert_text(b.told(GuestVerb::prepare_dump, Cut::freeze).text(), "ready_criu/disk");
        b.criu_ready();
        b.told(GuestVerb::freeze, Cut::freeze);
    };
    for (int i = 0; i < 2; ++i) {
        begins();
        ck_assert_text(b.ended(guest::DumpFailed{"not now", false}).text(), ">running(not now)");
        ck_assert_text(b.command(GuestVerb::resume).text(), ">running");
    }
    begins();
    ck_assert_text(b.ended(guest::DumpFailed{"not now", false}).text(), "P:running stand");
    ck_assert_text(b.ended(guest::Stood{}).text(), ">dumping(not now)");
    // A dump that is known to be impossible for ever is not tried again: the job stands at once.
    AtCut never;
    never.or_stand = true;
    never.running();
    never.ended(guest::Movable{"a device"});
    never.told(GuestVerb::prepare_dump, Cut::freeze);
    never.criu_ready();
    never.told(GuestVerb::freeze, Cut::freeze);
    ck_assert(never.ended(guest::DumpFailed{"a device", true}).text().find("stand") !=
              std::string::npos);
}
END_TEST

START_TEST(what_is_saved_at_a_cut_goes_on_when_its_home_says_that_all_stand) {
    AtCut b;
    b.stands(Cut::checkpoint);
    ck_assert_text(b.text(), ">shipped");
    ck_assert_uint_eq(b.held_for().n, 7);
    ck_assert_text(b.command(GuestVerb::commit).text(), ">shipped");  // it is not to be frozen
    ck_assert_text(b.told(GuestVerb::checkpoint, Cut::none, 8).text(), ">shipped");  // of another
    ck_assert_text(b.told(GuestVerb::checkpoint, Cut::none).text(), "go_on");
    // The word comes twice: it is not dumped once more, at another time.
    ck_assert_text(b.told(GuestVerb::checkpoint, Cut::none).text(), ">dumping");
    ck_assert_text(b.undone().text(), "send_checkpoint >running");
    ck_assert_text(b.told(GuestVerb::checkpoint, Cut::none).text(), ">running");
    AtCut off;
    off.stands(Cut::checkpoint);
    ck_assert_text(off.command(GuestVerb::resume).text(), "undo_dump");
    ck_assert_text(off.undone().text(), ">running");
}
END_TEST

START_TEST(a_daemon_that_comes_back_keeps_standing_what_was_dumped_at_a_cut) {
    Guest::Found found;
    found.capsule_alive = found.job_alive = found.held_by_dump = found.image_complete = true;
    Bench b;
    b.recovered(GuestState::shipped, false, found);
    ck_assert(b.state() == GuestState::dumping);
    ck_assert_text(b.command(GuestVerb::commit).text(), "p:frozen finish_dump");
    Bench off;
    off.recovered(GuestState::shipped, false, found);
    ck_assert_text(off.command(GuestVerb::resume).text(), "P:running undo_dump");
    Bench dead;
    found.capsule_alive = found.job_alive = found.held_by_dump = false;
    dead.recovered(GuestState::shipped, false, found);
    ck_assert(dead.state() == GuestState::frozen);
}
END_TEST

UNIT_SUITE(guest_gangs, a_component_is_held_before_its_program_until_it_is_released,
           a_component_that_cannot_start_or_is_not_wanted_leaves_nothing,
           a_restart_ends_what_was_held_and_lets_go_on_what_was_released,
           a_node_does_not_hold_a_component_for_ever,
           what_is_dumped_at_a_cut_stands_until_its_home_has_decided,
           who_cannot_be_dumped_at_a_cut_goes_on_twice_and_stands_then,
           what_is_saved_at_a_cut_goes_on_when_its_home_says_that_all_stand,
           a_daemon_that_comes_back_keeps_standing_what_was_dumped_at_a_cut);
