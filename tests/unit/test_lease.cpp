// SPDX-License-Identifier: GPL-2.0-or-later
// Leases of the guest and the home machine (agentd/core/lease.hpp). Under random faults: tests/sim.
#include "agentd/core/guest.hpp"
#include "agentd/core/home.hpp"
#include "agentd/core/lease.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;

namespace {

const GuestKey key{{"n1", 1}, {1}};
constexpr Nanos lease = Nanos::from_s(80);  // a heartbeat each 10 s, 20 s to freeze it to disk
using What = guest::Do::What;

JobSpec spec_of(Nanos its_lease) {
    JobSpec s;
    s.launch.path = "/bin/job";
    s.launch.argv = {s.launch.path};
    s.lease = its_lease;
    return s;
}

// A guest with one job of n1's, its clock, and what came out of the last step.
struct Host {
    Guest g;
    guest::Outputs out;
    Nanos now = Nanos::from_s(1000);
    template <class F>
    Host& step(F f) {
        out.clear();
        (void)g.tick(now, out);
        f(g, out);
        next = g.tick(now, out);
        return *this;
    }
    Nanos next;

    Host& at(int64_t s) {
        now = Nanos::from_s(1000 + s);
        return step([](Guest&, guest::Outputs&) {});
    }
    Host& command(GuestVerb verb) {
        GuestCommand c;
        c.id = key.id;
        c.epoch = key.epoch;
        c.verb = verb;
        c.new_epoch = {2};
        c.spec = spec_of(lease);
        return step([&](Guest& m, guest::Outputs& o) { m.command("n1", c, o); });
    }
    Host& answer(int64_t sent_s) {
        return step([&](Guest& m, guest::Outputs& o) {
            m.heartbeat_answered("n1", {Nanos::from_s(1000 + sent_s)}, now, o);
        });
    }
    Host& ended(guest::Event event) {
        return step([&](Guest& m, guest::Outputs& o) { m.ended(key, std::move(event), o); });
    }
    Host& running() {
        command(GuestVerb::start).ended(guest::CapsuleReady{});
        return answer(0).ended(guest::JobStarted{});
    }
    const guest::Do* done(What what) const {
        for (const auto& o : out)
            if (const auto* d = std::get_if<guest::Do>(&o); d && d->what == what) return d;
        return nullptr;
    }
    const GuestEvent* told() const {
        const GuestEvent* last = nullptr;
        for (const auto& o : out)
            if (const auto* h = std::get_if<guest::ToHome>(&o))
                if (const auto* e = std::get_if<GuestEvent>(&h->message)) last = e;
        return last;
    }
    bool heartbeats() const {
        for (const auto& o : out)
            if (const auto* h = std::get_if<guest::ToHome>(&o);
                h && std::holds_alternative<Heartbeat>(h->message))
                return true;
        return false;
    }
};

// A home n1 with one job that runs on n2, and a clock.
struct Owner {
    Home h{"n1", [] {
               Home::Limits l;
               l.lease = lease;
               l.address = "a:1";
               return l;
           }()};
    home::Outputs out;
    Nanos now = Nanos::from_s(5000);
    JobId id;
    template <class F>
    Owner& step(F f) {
        out.clear();
        f(h, out);
        next = h.tick(now, out);
        return *this;
    }
    Nanos next;

    explicit Owner(bool restart, bool leased = true) {
        Submission s;
        s.spec = spec_of({});
        s.spec.restart = restart;
        s.terms.max_price = Money::units(1);
        step([&](Home& m, home::Outputs& o) { id = *m.submit(s, now, o); });
        order("n2", 1);
        event(GuestState::running, leased);
    }
    Owner& order(const char* node, uint64_t seq) {
        Order o;
        o.id = id;
        o.seq = seq;
        o.node = node;
        o.address = "b:1";
        return step([&](Home& m, home::Outputs& to) { m.order(o, now, to); });
    }
    Owner& event(GuestState state, bool leased = true, bool lapsed = false) {
        GuestEvent e;
        e.id = id;
        e.epoch = {1};
        e.state = state;
        e.leased = leased;
        e.lapsed = lapsed;
        if (lapsed) e.why = "it stands";
        return step([&](Home& m, home::Outputs& o) { m.guest_event("n2", e, now, o); });
    }
    Owner& after(Nanos span) {
        now += span;
        return step([](Home&, home::Outputs&) {});
    }
    bool sent(GuestVerb verb) const {
        for (const auto& o : out)
            if (const auto* g = std::get_if<home::ToGuest>(&o); g && g->command.verb == verb)
                return true;
        return false;
    }
    JobPhase phase() const { return h.find(id)->phase; }
};

}  // namespace

START_TEST(what_an_order_has_stopped_goes_to_disk_before_its_lease_ends) {
    Host h;
    h.g = Guest(16, true, {});
    h.running().step([](Guest& m, guest::Outputs& o) {
        GuestCommand c;
        c.id = key.id;
        c.epoch = key.epoch;
        c.verb = GuestVerb::freeze;
        c.or_stand = c.stand = true;
        m.command("n1", c, o);
    });
    ck_assert(h.done(What::stand));
    h.ended(guest::Stood{});
    ck_assert(!h.at(55).done(What::undo_dump));
    ck_assert(h.at(61).done(What::undo_dump));
    ck_assert(h.ended(guest::DumpUndone{}).done(What::ready_criu));
}
END_TEST

START_TEST(a_job_starts_when_its_home_has_answered_a_heartbeat_and_counts_from_when_that_was_sent) {
    Host b;
    b.command(GuestVerb::start);
    ck_assert(b.heartbeats());
    b.ended(guest::CapsuleReady{});
    ck_assert(!b.done(What::start_job));
    b.now = Nanos::from_s(1005);
    b.answer(0);
    ck_assert(b.done(What::start_job));
    ck_assert_int_eq(b.done(What::keep_lease)->until.ns, (Nanos::from_s(1000) + lease).ns);
    ck_assert(b.done(What::keep_lease) < b.done(What::start_job));
    // Each further answer moves the deadline. An answer that was overtaken does not move it back.
    b.ended(guest::JobStarted{});
    ck_assert(b.at(10).heartbeats() && !b.at(11).heartbeats());
    ck_assert_int_eq(b.answer(10).done(What::keep_lease)->until.ns,
                     (Nanos::from_s(1010) + lease).ns);
    ck_assert(!b.answer(3).done(What::keep_lease));
    // An answer from the future belongs to another life of the machine, and is worth nothing.
    ck_assert(!b.answer(500).done(What::keep_lease));
}
END_TEST

// A kill that comes before the start is known removes everything that belongs to the start.
START_TEST(a_job_that_was_killed_before_it_ran_neither_starts_nor_heartbeats) {
    Host waits;
    waits.command(GuestVerb::start).ended(guest::CapsuleReady{}).command(GuestVerb::kill);
    waits.ended(guest::CapsuleGone{});
    ck_assert(waits.told()->state == GuestState::killed);
    waits.answer(0);
    ck_assert(waits.out.empty());
    Host told;
    told.command(GuestVerb::start).ended(guest::CapsuleReady{}).answer(0);
    ck_assert(told.done(What::start_job));
    told.command(GuestVerb::kill).ended(guest::CapsuleGone{});
    ck_assert(told.told()->state == GuestState::killed);
    ck_assert(!told.at(100).heartbeats() && told.next == Nanos::never());
}
END_TEST

START_TEST(
    a_job_without_a_lease_or_on_a_machine_that_cannot_stop_it_heartbeats_never_and_starts_at_once) {
    Host b;
    b.g = Guest(16, false);
    b.command(GuestVerb::start).ended(guest::CapsuleReady{});
    ck_assert(b.done(What::start_job) && !b.done(What::keep_lease) && !b.heartbeats());
    b.ended(guest::JobStarted{});
    ck_assert(!b.told()->leased && b.next == Nanos::never());
}
END_TEST

START_TEST(
    a_home_that_asks_for_a_lease_of_next_to_nothing_gets_no_more_than_ten_heartbeats_a_second) {
    Host b;
    GuestCommand c;
    c.id = key.id;
    c.epoch = key.epoch;
    c.verb = GuestVerb::start;
    c.spec = spec_of(Nanos{1});
    b.step([&](Guest& m, guest::Outputs& o) { m.command("n1", c, o); });
    ck_assert(b.heartbeats() && b.next == b.now + Nanos::from_ms(100));
}
END_TEST

START_TEST(what_comes_first_after_a_machine_slept_past_the_lease_starts_nothing) {
    Host b;
    b.command(GuestVerb::start).answer(0);
    b.now += lease;
    b.ended(guest::CapsuleReady{});
    ck_assert(!b.done(What::start_job) && b.heartbeats());
    ck_assert(b.answer(lease.ns / 1'000'000'000).done(What::start_job));
}
END_TEST

START_TEST(a_job_whose_lease_ends_is_frozen_to_disk_and_says_so) {
    Host b;
    b.running();
    ck_assert(!b.at(59).done(What::ready_criu));
    ck_assert(b.at(60).done(What::ready_criu)->to_disk);
    ck_assert(b.ended(guest::CriuReady{}).done(What::dump_to_disk));
    b.ended(guest::DumpHeld{100, false, false});
    ck_assert(b.g.find(key)->state == GuestState::frozen && b.g.find(key)->lapsed);
    b.ended(guest::CapsuleGone{});
    ck_assert(b.told()->state == GuestState::frozen && b.told()->lapsed);
    ck_assert(!b.at(100).heartbeats() &&
              b.next == Nanos::never());  // nothing runs, and no heartbeat is due
}
END_TEST

START_TEST(a_freeze_that_fails_is_not_tried_again_and_the_job_stands_from_the_deadline_on) {
    Host b;
    b.running().at(60).ended(guest::CriuFailed{"io_uring"});
    ck_assert(!b.at(70).done(What::ready_criu));
    b.now = Nanos::from_s(1080);
    b.ended(guest::Lapsed{});
    ck_assert(b.told()->state == GuestState::dumping && b.told()->lapsed);
    ck_assert(b.told()->why.code == CauseCode::lease_over);
    // A word that was long on its way may be of before the home let the job go on elsewhere.
    ck_assert(!b.command(GuestVerb::resume).done(What::undo_dump));
    ck_assert(!b.command(GuestVerb::commit).told()->why.empty());
    b.at(200).answer(200);
    ck_assert(b.done(What::keep_lease)->stands && !b.done(What::undo_dump));
    ck_assert(b.told()->lapsed);
    b.command(GuestVerb::resume);
    ck_assert(b.done(What::undo_dump) && b.done(What::keep_lease) < b.done(What::undo_dump));
    b.ended(guest::DumpUndone{});
    ck_assert(b.told()->state == GuestState::running && !b.told()->lapsed);
}
END_TEST

// The disk was full, so that the later deadline came to the cell after the end of the earlier one.
// It lets the job go on, and nobody is told that the job stands.
START_TEST(the_end_of_a_lease_that_was_prolonged_meanwhile_says_nothing) {
    Host b;
    b.running();
    const Nanos first = Nanos::from_s(1000) + lease;
    b.at(30).answer(30);
    const Nanos second = b.done(What::keep_lease)->until;
    ck_assert(first < second && !b.done(What::keep_lease)->stands);
    b.ended(guest::Lapsed{first});
    ck_assert(!b.told() && b.g.find(key)->state == GuestState::running);
    b.ended(guest::Lapsed{second});
    ck_assert(b.told()->state == GuestState::dumping && b.told()->lapsed);
}
END_TEST

START_TEST(a_job_that_its_capsule_stopped_while_the_daemon_was_dead_waits_for_its_home) {
    Host b;
    GuestJob record;
    record.key = key;
    record.spec = spec_of(lease);
    record.state = GuestState::running;
    Guest::Found found;
    found.capsule_alive = found.job_alive = found.held_by_dump = found.lapsed = true;
    b.step([&](Guest& m, guest::Outputs& o) { m.recovered(record, found, o); });
    ck_assert(!b.command(GuestVerb::resume).done(What::undo_dump));
    b.step([](Guest& m, guest::Outputs& o) { m.home_up("n1", o); });
    ck_assert(b.told()->lapsed && b.heartbeats());
    ck_assert(!b.answer(0).done(What::undo_dump));
    ck_assert(b.command(GuestVerb::resume).done(What::undo_dump));
}
END_TEST

START_TEST(a_home_goes_on_without_a_node_when_its_copy_is_sure_to_stand_and_not_before) {
    Owner b(true);
    b.after(Nanos::from_s(30)).step([&](Home& m, home::Outputs& o) {
        m.heartbeat("n2", {}, b.now, o);
    });
    ck_assert(std::holds_alternative<home::Answer>(b.out.front()));
    b.after(lease);
    ck_assert(b.phase() == JobPhase::running);
    ck_assert(b.next == Nanos::from_s(5030) + home_waits(lease));
    b.after(home_waits(lease) - lease);
    ck_assert(b.phase() == JobPhase::waiting && b.sent(GuestVerb::kill));
    // The home's orders to that node fail at once, until it hears from the node.
    b.order("n2", 2);
    ck_assert(b.phase() == JobPhase::waiting && !b.sent(GuestVerb::start));
    b.step([&](Home& m, home::Outputs& o) { m.heartbeat("n2", {}, b.now, o); }).order("n2", 3);
    ck_assert(b.sent(GuestVerb::start));
}
END_TEST

START_TEST(a_home_with_nothing_to_go_back_to_waits_charges_nothing_and_says_why) {
    Owner b(false);
    b.after(home_waits(lease));
    ck_assert(b.phase() == JobPhase::running && b.next == Nanos::never());
    const auto charged = b.h.find(b.id)->stats.run_time;
    ck_assert(charged == home_waits(lease));
    b.after(Nanos::from_s(1000)).event(GuestState::dumping, true, true);
    ck_assert(b.sent(GuestVerb::resume));
    ck_assert(b.h.find(b.id)->stats.run_time == charged);
    b.event(GuestState::frozen, true, true);
    ck_assert(b.phase() == JobPhase::frozen);
}
END_TEST

START_TEST(a_home_that_slept_charges_a_job_no_longer_than_its_lease) {
    for (const char* first : {"time", "heartbeat", "word"}) {
        Owner b(false);
        b.now += Nanos::from_s(100'000);
        if (*first == 't') b.after({});
        if (*first == 'h')
            b.step([&](Home& m, home::Outputs& o) { m.heartbeat("n2", {}, b.now, o); });
        if (*first != 't') b.event(GuestState::dumping, true, true);
        const HomeJob& job = *b.h.find(b.id);
        ck_assert_msg(
            job.running_since == Nanos::never() && job.stats.run_time == home_waits(lease),
            "%s: %lld s", first, static_cast<long long>(job.stats.run_time.ns / 1'000'000'000));
    }
}
END_TEST

START_TEST(a_node_that_keeps_no_leases_is_never_gone_on_without) {
    Owner b(true, false);
    ck_assert(b.next == Nanos::never());
    b.after(Nanos::from_s(100'000));
    ck_assert(b.phase() == JobPhase::running);
}
END_TEST

START_TEST(a_home_that_was_started_again_counts_from_then_as_it_may_have_answered_until_it_ended) {
    Owner before(true);
    const HomeJob job = *before.h.find(before.id);
    ck_assert(job.leased);
    Owner b(true);
    b.h = Home("n1", Home::Limits{});
    b.h.load(job);
    b.now = Nanos::from_s(9000);
    b.step([&](Home& m, home::Outputs& o) { m.restarted(b.now, o); });
    ck_assert(b.next == Nanos::from_s(9000) + home_waits(lease));
}
END_TEST

START_TEST(what_a_job_has_run_is_not_called_frozen_by_the_decision_that_its_copy_is_older_than) {
    // The source went on after it was held, and was then frozen to disk as its lease was over: its
    // image is the newer.
    Owner b(false);
    b.order("n3", 2);
    const auto candidate = [&](GuestState state) {
        GuestEvent e;
        e.id = b.id;
        e.epoch = {2};
        e.state = state;
        b.step([&](Home& m, home::Outputs& o) { m.guest_event("n3", e, b.now, o); });
    };
    candidate(GuestState::prepared);
    b.event(GuestState::dump_ready);
    candidate(GuestState::held);
    ck_assert(b.h.find(b.id)->step == MoveStep::kill_old);
    b.event(GuestState::frozen, true, true);
    ck_assert(b.phase() == JobPhase::frozen && b.h.find(b.id)->at.node == "n2");
    ck_assert(!b.sent(GuestVerb::release));
}
END_TEST

UNIT_SUITE(
    lease, a_job_starts_when_its_home_has_answered_a_heartbeat_and_counts_from_when_that_was_sent,
    what_an_order_has_stopped_goes_to_disk_before_its_lease_ends,
    a_job_that_was_killed_before_it_ran_neither_starts_nor_heartbeats,
    a_job_without_a_lease_or_on_a_machine_that_cannot_stop_it_heartbeats_never_and_starts_at_once,
    a_home_that_asks_for_a_lease_of_next_to_nothing_gets_no_more_than_ten_heartbeats_a_second,
    what_comes_first_after_a_machine_slept_past_the_lease_starts_nothing,
    a_job_whose_lease_ends_is_frozen_to_disk_and_says_so,
    a_freeze_that_fails_is_not_tried_again_and_the_job_stands_from_the_deadline_on,
    the_end_of_a_lease_that_was_prolonged_meanwhile_says_nothing,
    a_job_that_its_capsule_stopped_while_the_daemon_was_dead_waits_for_its_home,
    a_home_goes_on_without_a_node_when_its_copy_is_sure_to_stand_and_not_before,
    a_home_with_nothing_to_go_back_to_waits_charges_nothing_and_says_why,
    a_home_that_slept_charges_a_job_no_longer_than_its_lease,
    a_node_that_keeps_no_leases_is_never_gone_on_without,
    a_home_that_was_started_again_counts_from_then_as_it_may_have_answered_until_it_ended,
    what_a_job_has_run_is_not_called_frozen_by_the_decision_that_its_copy_is_older_than);
