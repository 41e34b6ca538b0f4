// SPDX-License-Identifier: GPL-2.0-or-later
// Jobs that cannot be dumped, where the owner of their node wants them gone: the Guest and the Home
// by hand. The Market is in test_owner_market.cpp.
#include "agentd/core/guest.hpp"
#include "agentd/core/home.hpp"

#include "tests/unit/guest_bench.hpp"
#include "tests/unit/home_bench.hpp"

using namespace souk;

namespace {

constexpr const char* queue = "has a POSIX message queue open";

// A guest whose dumps fail, with an owner's policy; its clock goes by wait().
struct Host : unit::guests::Bench {
    Nanos now = Nanos::from_s(1);
    explicit Host(OwnerPolicy policy = {}, bool can_stop = true) {
        g = Guest(16, can_stop, policy);
        wait({});
    }
    Host& wait(Nanos span) {
        now += span;
        out.clear();
        (void)g.tick(now, out);
        return *this;
    }
    Host& freeze() {
        GuestCommand c;
        c.id = unit::guests::job;
        c.epoch = {1};
        c.verb = GuestVerb::freeze;
        c.or_stand = true;
        out.clear();
        g.command("n1", c, out);
        return *this;
    }
    Host& dump_fails(const char* why = queue, bool of_job = true) {
        ended(guest::DumpFailed{why, of_job});
        return *this;
    }
    Host& stood(const char* why = "") {
        ended(guest::Stood{why});
        return *this;
    }
    Host& looked(const char* why) {
        ended(guest::Movable{why});
        return *this;
    }
    Host& owner(bool on) {
        end([&](Guest& m, guest::Outputs& o) { m.set_accepting(on, "off", o); });
        return *this;
    }
    // Brings the guest into the middle of a dump for a move.
    Host& dumping_to_move() {
        command(GuestVerb::prepare_dump);
        criu_ready();
        command(GuestVerb::ship);
        sent_precopy();
        return *this;
    }
    const GuestEvent& told() const {
        for (const auto& o : out)
            if (const auto* t = std::get_if<guest::ToHome>(&o))
                if (const auto* e = std::get_if<GuestEvent>(&t->message)) return *e;
        ck_abort_msg("nothing was told");
    }
};

}  // namespace

START_TEST(what_fails_to_move_twice_for_the_same_reason_is_known_as_immovable) {
    Host h;
    h.running();
    h.dumping_to_move().dump_fails("cannot dump file 3 of 117");
    ck_assert_text(h.told().cannot_move, "");
    h.dumping_to_move().dump_fails("something else");
    ck_assert_text(h.told().cannot_move, "");
    h.dumping_to_move().dump_fails("no room for its image", false);  // the node's trouble
    h.dumping_to_move().dump_fails("no room for its image", false);
    ck_assert_text(h.told().cannot_move, "");
    h.dumping_to_move().dump_fails("cannot dump file 3 of 117");
    h.dumping_to_move().dump_fails("cannot dump file 4 of 218");  // the same, of another number
    ck_assert_text(h.told().cannot_move, "cannot dump file 4 of 218");
    // A reason why a job cannot be dumped is believed for a while only.
    h.wait(Nanos::from_s(299));
    ck_assert_text(h.text(), "");
    h.wait(Nanos::from_s(2));
    ck_assert_text(h.text(), ">running");
    ck_assert_text(h.told().cannot_move, "");
    h.dumping_to_move();
    h.dump_held();
    h.command(GuestVerb::resume);
    h.undone();
    h.dumping_to_move().dump_fails("cannot dump file 3 of 117");  // it could be dumped meanwhile
    ck_assert_text(h.told().cannot_move, "");
}
END_TEST

START_TEST(a_freeze_that_fails_stops_the_job_where_it_is_until_its_home_lets_it_go_on) {
    Host h;
    h.running();
    ck_assert_text(h.freeze().text(), "ready_criu/disk");
    ck_assert_text(h.criu_ready().text(), "dump_to_disk");
    ck_assert_text(h.dump_fails().text(), "P:running stand");
    ck_assert_text(h.stood().text(), std::string(">dumping(") + queue + ")");
    ck_assert(h.told().in_place && h.told().cannot_move == queue && !h.told().lapsed);
    ck_assert_text(h.freeze().text(), std::string(">dumping(") + queue + ")");  // it is so already
    // it is no copy of anything
    ck_assert_text(h.command(GuestVerb::commit).text(), std::string(">dumping(") + queue + ")");
    ck_assert_text(h.command(GuestVerb::resume).text(), "P:running undo_dump");
    ck_assert_text(h.undone().text(), ">running");
    // After the second failure the reason is known, so the job is stopped without a dump.
    h.freeze();
    h.criu_ready();
    h.dump_fails();
    h.stood();
    h.command(GuestVerb::resume);
    h.undone();
    ck_assert_text(h.freeze().text(), "P:running stand");
    // An older home does not know this state. Then the job goes on.
    Host old;
    old.running();
    old.command(GuestVerb::freeze);
    old.criu_ready();
    ck_assert_text(old.dump_fails().text(), std::string(">running(") + queue + ")");
    // A job that nothing can stop does not stand either.
    Host v1({}, false);
    v1.running();
    v1.freeze();
    v1.criu_ready();
    ck_assert_text(v1.dump_fails().text(), std::string(">running(") + queue + ")");
}
END_TEST

START_TEST(what_a_look_finds_is_stopped_at_once_and_tried_again_when_the_reason_is_gone) {
    Host h;
    h.running();
    ck_assert_text(h.looked(queue).text(), ">running");
    ck_assert_text(h.told().cannot_move, queue);
    ck_assert_text(h.freeze().text(), "P:running stand");
    h.stood();
    ck_assert_text(h.wait(Nanos::from_s(3'600)).text(), "");
    h.looked("");
    ck_assert_text(h.wait(Nanos::from_s(3'600)).text(), "P:running undo_dump");
    ck_assert_text(h.undone().text(), "ready_criu/disk");
    h.criu_ready();
    ck_assert_text(h.dump_held().text(), "P:frozen finish_dump");
    ck_assert_text(h.gone().text(), ">frozen");
    ck_assert(!h.told().in_place);
}
END_TEST

START_TEST(what_stands_after_one_failed_dump_is_tried_once_more_and_no_more_after_the_second) {
    Host h;
    h.running();
    h.freeze();
    h.criu_ready();
    h.dump_fails();
    h.stood();
    ck_assert_text(h.wait(Nanos::from_s(9)).text(), "");
    ck_assert_text(h.wait(Nanos::from_s(2)).text(), "P:running undo_dump");
    ck_assert_text(h.undone().text(), "ready_criu/disk");
    h.criu_ready();
    ck_assert_text(h.dump_fails().text(), "P:running stand");
    h.stood();
    ck_assert_text(h.wait(Nanos::from_s(100'000)).text(), "");
}
END_TEST

START_TEST(a_word_in_the_middle_of_being_stopped_counts_when_it_stands) {
    Host h;
    h.running();
    h.looked(queue);
    h.freeze();
    ck_assert_text(h.command(GuestVerb::resume).text(), "");
    ck_assert_text(h.stood().text(), "P:running undo_dump");
    ck_assert_text(h.undone().text(), ">running");
    h.freeze();
    ck_assert_text(h.command(GuestVerb::kill).text(), "");
    ck_assert_text(h.stood().text(), "finish_dump");
    Host not_stopped;
    not_stopped.running();
    not_stopped.looked(queue);
    not_stopped.freeze();
    ck_assert_text(not_stopped.stood("no group").text(), "P:running >running(no group)");
}
END_TEST

START_TEST(a_restart_finds_what_stands_and_what_does_not) {
    Guest::Found found;
    found.capsule_alive = found.job_alive = found.held_by_dump = true;
    GuestJob record;
    record.key = unit::guests::key;
    record.state = GuestState::running;
    record.in_place = true;
    Host h;
    h.end([&](Guest& m, guest::Outputs& o) { m.recovered(record, found, o); });
    h.command(GuestVerb::query);
    ck_assert(h.told().in_place && h.told().state == GuestState::dumping);
    found.held_by_dump = false;  // its daemon died before it had stopped the job
    Host runs;
    runs.end([&](Guest& m, guest::Outputs& o) { m.recovered(record, found, o); });
    runs.command(GuestVerb::query);
    ck_assert(!runs.told().in_place && runs.told().state == GuestState::running);
}
END_TEST

START_TEST(an_owner_who_leaves_is_rid_of_guests_within_his_bound_whatever_their_homes_do) {
    OwnerPolicy policy;
    policy.leave = Nanos::from_s(5);
    Host h(policy);
    h.running();
    ck_assert_text(h.owner(false).text(), "X");
    ck_assert_text(h.wait(Nanos::from_s(4)).text(), "");
    ck_assert_text(h.wait(Nanos::from_s(1)).text(), "ready_criu/disk");
    h.criu_ready();
    h.dump_fails();
    h.stood();
    ck_assert(h.told().in_place);
    ck_assert_uint_eq(h.g.left().size(), 1);
    ck_assert(h.g.left()[0].stands);
    ck_assert_text(h.g.left()[0].why, queue);
    // The node takes guests again before that time, so no job is frozen.
    Host back(policy);
    back.running();
    back.owner(false);
    back.owner(true);
    ck_assert_text(back.wait(Nanos::from_s(60)).text(), "");
}
END_TEST

START_TEST(an_owner_may_have_what_stands_killed_after_a_bound) {
    OwnerPolicy policy;
    policy.kill = true;
    policy.stand = Nanos::from_s(30);
    Host h(policy);
    h.running();
    h.looked(queue);
    h.freeze();
    h.stood();
    ck_assert_text(h.wait(Nanos::from_s(29)).text(), "");
    ck_assert_text(h.wait(Nanos::from_s(2)).text(), "finish_dump");
    ck_assert(std::get<guest::Do>(h.out.back()).by_owner);
    ck_assert_text(
        h.gone().text(),
        std::string("P:killed >killed(it could not leave, and the owner of this node has such jobs "
                    "killed after 30 s (") +
            queue + "))");
    ck_assert(std::any_of(h.out.begin(), h.out.end(), [](const guest::Output& o) {
        const auto* t = std::get_if<guest::ToHome>(&o);
        const auto* e = t ? std::get_if<GuestEvent>(&t->message) : nullptr;
        return e && e->why.code == CauseCode::owner_killed;
    }));
    policy.kill = false;
    Host stays(policy);
    stays.running();
    stays.looked(queue);
    stays.freeze();
    stays.stood();
    ck_assert_text(stays.wait(Nanos::from_s(100'000)).text(), "");
}
END_TEST

START_TEST(an_evicted_job_is_told_to_leave_then_frozen_and_what_cannot_be_is_killed) {
    OwnerPolicy policy;
    policy.leave = Nanos::from_s(10);
    policy.stand = Nanos::from_s(30);
    Host h(policy);
    h.running();
    h.end([](Guest& m, guest::Outputs& o) {
        ck_assert(m.evict(unit::guests::job, "evicted", o));
        ck_assert(!m.evict({"n1", 4'711}, "evicted", o));
    });
    ck_assert_int_eq(std::count_if(h.out.begin(), h.out.end(),
                                   [](const guest::Output& o) {
                                       const auto* t = std::get_if<guest::ToHome>(&o);
                                       return t && std::holds_alternative<Expel>(t->message);
                                   }),
                     1);
    ck_assert_text(h.wait(Nanos::from_s(9)).text(), "");
    h.looked(queue);
    h.wait(Nanos::from_s(2));  // to the disk; it cannot be, and stands
    h.stood();
    ck_assert_text(h.wait(Nanos::from_s(40)).text(), "finish_dump");  // also where they may stand
}
END_TEST

// A job that can go nowhere else is let go on by the market whenever it stands.
START_TEST(an_evicted_job_that_goes_on_again_and_again_ends_no_later) {
    OwnerPolicy policy;
    policy.leave = Nanos::from_s(10);
    policy.stand = Nanos::from_s(30);
    for (const bool goes_on : {false, true}) {
        Host h(policy);
        h.running();
        h.looked(queue);
        h.end([](Guest& m, guest::Outputs& o) { m.evict(unit::guests::job, "evicted", o); });
        h.wait(Nanos::from_s(11));
        h.stood();
        for (int i = 0; i < 4; ++i) {
            h.wait(Nanos::from_s(5));
            h.command(GuestVerb::resume);
            h.undone();
            h.wait(Nanos::from_s(1));
            if (goes_on && i == 3) break;
            h.freeze();
            h.stood();
        }
        ck_assert_text(h.wait(Nanos::from_s(6)).text(),
                       goes_on ? "P:running stand kill_capsule" : "finish_dump");
    }
}
END_TEST

START_TEST(a_home_takes_what_stands_for_frozen_there_and_lets_it_go_on_there) {
    unit::Bench b;
    b.running().suspend();
    const auto* freeze = std::get_if<home::ToGuest>(&b.out.back());
    ck_assert(freeze && freeze->command.verb == GuestVerb::freeze && freeze->command.or_stand);
    b.now += Nanos::from_s(5);
    b.in_place("n2", 1);
    ck_assert_text(b.text(), "P");
    ck_assert(b.job().phase == JobPhase::frozen && b.job().in_place);
    ck_assert(b.reported() && b.reported()->in_place &&
              b.reported()->cannot_move == "a queue is open");
    ck_assert_int_eq(b.job().stats.run_time.ns, Nanos::from_s(5).ns);
    b.now += Nanos::from_s(100);
    ck_assert_text(b.run_on("n2").text(), "P resume n2.1");
    ck_assert(b.reported()->stands);  // until its node says that it runs it is not paid for
    b.event("n2", 1, GuestState::running);
    ck_assert(b.job().phase == JobPhase::running && !b.job().in_place);
    b.now += Nanos::from_s(3);
    b.suspend();
    b.in_place("n2", 1);
    ck_assert_int_eq(b.job().stats.run_time.ns, Nanos::from_s(8).ns);
    // An operator may have it try to move: then it is a job that runs.
    ck_assert_text(b.run_on("n3").text(), "P prepare n3.2 prepare_dump n2.1");
}
END_TEST

START_TEST(what_stands_is_found_again_by_a_home_that_was_away_and_may_become_an_image) {
    unit::Bench b;
    b.running().suspend().in_place("n2", 1);
    unit::Bench again = b.again();
    ck_assert_text(again.up("n2").text(), "query n2.1");
    ck_assert_text(again.in_place("n2", 1).text(), "");  // it knows why it stands
    ck_assert_text(again.event("n2", 1, GuestState::frozen).text(), "P");
    ck_assert(again.job().phase == JobPhase::frozen && !again.job().in_place);
    ck_assert_text(again.run_on("n3").text(), "P prepare n3.2");
    // The node has forgotten why the job stands, so the freeze is ordered once more.
    unit::Bench forgot = b.again();
    ck_assert_text(forgot.event("n2", 1, GuestState::dumping, "its daemon ended").text(),
                   "freeze n2.1");
    // The job ends where it stands.
    unit::Bench cancelled = b.again();
    ck_assert_text(cancelled.cancel().text(), "P kill n2.1");
    cancelled.event("n2", 1, GuestState::killed);
    ck_assert(cancelled.job().phase == JobPhase::finished && cancelled.job().cancelled);
    unit::Bench gone = b.again();
    gone.event("n2", 1, GuestState::unknown);
    ck_assert(gone.job().phase == JobPhase::finished);
    ck_assert_text(gone.job().why, "node n2 has lost it");
}
END_TEST

START_TEST(
    who_must_be_able_to_move_is_refused_at_launch_and_told_later_and_everybody_is_warned_once) {
    const auto found = [](unit::Bench& b, const char* why) {
        GuestEvent e;
        e.id = unit::id;
        e.epoch = {1};
        e.state = GuestState::running;
        e.cannot_move = why;
        b.out.clear();
        b.h.guest_event("n2", e, b.now, b.out);
    };
    const auto warnings = [](const unit::Bench& b) {
        int n = 0;
        for (const auto& o : b.out)
            if (const auto* t = std::get_if<home::Tell>(&o))
                n += t->what == home::Tell::What::warning;
        return n;
    };
    const auto begin = [](bool must) {
        unit::Bench b;
        Submission s;
        s.spec.launch.argv = {"/bin/job"};
        s.spec.must_migrate = must;
        s.terms.max_price = Money::units(1);
        ck_assert(b.h.submit(s, b.now, b.out).has_value());
        b.run_on("n2").event("n2", 1, GuestState::running);
        return b;
    };
    unit::Bench must = begin(true);
    found(must, queue);
    ck_assert_text(must.text(), "kill n2.1");
    must.event("n2", 1, GuestState::killed);
    ck_assert(must.job().phase == JobPhase::finished);
    ck_assert_text(must.job().why,
                   std::string("refused, as it must be able to move (--must-migrate): ") + queue);
    unit::Bench later = begin(true);
    later.now += Nanos::from_s(60);
    found(later, queue);
    ck_assert_text(later.text(), "");
    ck_assert_int_eq(warnings(later), 1);
    unit::Bench may = begin(false);
    found(may, queue);
    ck_assert_int_eq(warnings(may), 1);
    found(may, "");
    found(may, queue);
    ck_assert_int_eq(warnings(may), 0);
}
END_TEST

START_TEST(a_job_that_does_not_say_its_memory_gets_the_default_and_that_is_known) {
    Home::Limits limits;
    limits.memory_default_mb = 512;
    Home h("n1", limits);
    home::Outputs out;
    Submission s;
    s.spec.launch.argv = {"/bin/job"};
    s.terms.max_price = Money::units(1);
    const auto id = h.submit(s, {}, out);
    ck_assert(id && h.find(*id)->terms.memory_mb == 512 && h.find(*id)->terms.memory_by_default);
    JobTerms terms = h.find(*id)->terms;
    terms.max_price = Money::units(2);
    ck_assert(h.change(*id, terms, {}, out).has_value());
    ck_assert(h.find(*id)->terms.memory_by_default);
    s.terms.memory_mb = 64;
    const auto other = h.submit(s, {}, out);
    ck_assert(other && h.find(*other)->terms.memory_mb == 64 &&
              !h.find(*other)->terms.memory_by_default);
}
END_TEST

UNIT_SUITE(
    owner, what_fails_to_move_twice_for_the_same_reason_is_known_as_immovable,
    a_freeze_that_fails_stops_the_job_where_it_is_until_its_home_lets_it_go_on,
    what_a_look_finds_is_stopped_at_once_and_tried_again_when_the_reason_is_gone,
    what_stands_after_one_failed_dump_is_tried_once_more_and_no_more_after_the_second,
    a_word_in_the_middle_of_being_stopped_counts_when_it_stands,
    a_restart_finds_what_stands_and_what_does_not,
    an_owner_who_leaves_is_rid_of_guests_within_his_bound_whatever_their_homes_do,
    an_evicted_job_is_told_to_leave_then_frozen_and_what_cannot_be_is_killed,
    an_evicted_job_that_goes_on_again_and_again_ends_no_later,
    an_owner_may_have_what_stands_killed_after_a_bound,
    a_home_takes_what_stands_for_frozen_there_and_lets_it_go_on_there,
    what_stands_is_found_again_by_a_home_that_was_away_and_may_become_an_image,
    who_must_be_able_to_move_is_refused_at_launch_and_told_later_and_everybody_is_warned_once,
    a_job_that_does_not_say_its_memory_gets_the_default_and_that_is_known);
