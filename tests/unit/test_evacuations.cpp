// SPDX-License-Identifier: GPL-2.0-or-later
// Images that leave for their home, as the owner of their node wants them gone: the Home (n1) and
// the Guest (n2) by hand.
#include "agentd/core/guest.hpp"
#include "agentd/core/home.hpp"

#include "tests/unit/guest_bench.hpp"
#include "tests/unit/home_bench.hpp"

namespace souk::unit {
namespace {

constexpr Nanos s(int64_t n) { return Nanos::from_s(n); }
constexpr Nanos patience = Nanos::from_ms(1'500);

// Job n1.1 is frozen on n2, under epoch 1.
struct Frozen : Bench {
    Frozen() { frozen(); }
    Frozen& wanted(bool gone, const char* why = "") {
        GuestEvent e;
        e.id = id;
        e.epoch = {1};
        e.state = GuestState::frozen;
        e.must_leave = gone;
        e.why = why;
        out.clear();
        h.guest_event("n2", e, now, out);
        return *this;
    }
    Frozen& fetched() {
        wanted(true).wait(patience);
        return *this;
    }
    std::string said() const {
        std::string all;
        for (const auto& o : out)
            if (const auto* t = std::get_if<home::Tell>(&o)) all += t->text + "\n";
        return all;
    }
    std::string at() const { return job().at.node + "." + std::to_string(job().epoch.n); }
};

// Job n1.1 lies frozen here, on n2.
struct Node : guests::Bench {
    Node() {
        running().command(GuestVerb::freeze).criu_ready().dump_held().gone();
        home_is_up(true);
    }
    Node& home_is_up(bool up) {
        end([&](Guest& m, guest::Outputs& o) {
            if (up)
                m.home_up("n1", o);
            else
                m.home_down("n1");
        });
        return *this;
    }
    Node& owner(bool lends) {
        end([&](Guest& m, guest::Outputs& o) { m.set_accepting(lends, "its owner is back", o); });
        return *this;
    }
    bool must_leave() const {
        for (const auto& o : out)
            if (const auto* t = std::get_if<guest::ToHome>(&o))
                if (const auto* e = std::get_if<GuestEvent>(&t->message)) return e->must_leave;
        ck_abort_msg("nothing is told");
    }
    std::string waits() const { return g.image_waits(guests::key, "n2"); }
};

}  // namespace

START_TEST(an_image_comes_home_and_is_dropped_where_it_was_after_one_write) {
    Frozen b;
    ck_assert_text(b.wanted(true).text(), "");
    ck_assert_text(b.wait(patience - Nanos{1}).text(), "");  // the market may wake it elsewhere
    ck_assert_text(b.wait(Nanos{1}).text(), "P keep n1.2");
    ck_assert_text(b.event("n1", 2, GuestState::prepared).text(), "checkpoint n2.1");
    ck_assert_text(b.at(), "n2.1");
    ck_assert_text(b.event("n1", 2, GuestState::frozen).text(), "P drop n2.1");
    ck_assert_text(b.at(), "n1.2");
    ck_assert_int_eq(static_cast<int>(b.job().phase), static_cast<int>(JobPhase::frozen));
    ck_assert_uint_eq(b.job().evacuation.epoch.n, 0);
    ck_assert_text(b.job().story.steps().back().from, "n2");
    ck_assert_text(b.said(), "its image came home from n2\n");
    ck_assert_text(b.reported()->where, "n1");
    // The home asks for the old copy until it is gone.
    ck_assert_text(b.up("n2").text(), "query n2.1");
    ck_assert_text(b.event("n2", 1, GuestState::unknown).text(), "");
    // The job thaws from here as from any other node.
    ck_assert_text(b.run_on("n3").text(), "P prepare n3.3");
    ck_assert_text(b.event("n3", 3, GuestState::prepared).text(), "ship n1.2");
}
END_TEST

START_TEST(an_order_to_thaw_it_comes_first_and_what_has_come_is_ended) {
    Frozen b;
    b.fetched().event("n1", 2, GuestState::prepared);
    ck_assert_text(b.run_on("n3").text(), "kill n1.2 P prepare n3.3");
    ck_assert_text(b.event("n1", 2, GuestState::frozen).text(), "drop n1.2");
    ck_assert_text(b.at(), "n2.1");
    // The job could not thaw there, so its image still has to leave.
    b.event("n3", 3, GuestState::failed, "no");
    ck_assert_text(b.wait(patience).text(), "P keep n1.4");
}
END_TEST

START_TEST(what_fails_is_tried_again_after_a_growing_while_and_why_is_said_once) {
    Frozen b;
    b.fetched().event("n1", 2, GuestState::failed, "the disk is full");
    ck_assert_text(b.text(), "kill n1.2 P");
    ck_assert_int_eq(static_cast<int>(b.job().comment.code),
                     static_cast<int>(CauseCode::image_stays));
    ck_assert_text(b.said(), "its image stays on n2 for now: the disk is full\n");
    ck_assert(
        b.reported()->image_stays ==
        souk::Cause(CauseCode::image_stays, "its image stays on n2 for now: the disk is full"));
    ck_assert_text(b.wait(patience).text(), "");
    ck_assert_text(b.wait(patience).text(), "P keep n1.3");
    b.event("n1", 3, GuestState::prepared).wait(s(1));
    b.wanted(true);  // said again: did the word arrive?
    ck_assert_text(b.text(), "query n1.3");
    ck_assert_text(b.event("n1", 3, GuestState::prepared).text(), "checkpoint n2.1");
    b.wanted(true, "the disk is full");  // n2 could not send it
    ck_assert_text(b.text(), "kill n1.3 P");
    ck_assert_text(b.said(), "");
    Nanos longest = b.now;
    for (int i = 0; i < 12; ++i) {
        longest = b.now;
        while (b.job().evacuation.epoch.n == 0) b.wait(s(1));
        longest = b.now - longest;
        b.event("n1", b.job().last_epoch.n, GuestState::failed, "the disk is full");
    }
    ck_assert_int_ge(longest.ns, s(299).ns);
    ck_assert_int_le(longest.ns, s(301).ns);
    while (b.job().evacuation.epoch.n == 0) b.wait(s(1));
    ck_assert_text(b.wait(s(900)).text(), "kill n1." + std::to_string(b.job().last_epoch.n) + " P");
    ck_assert_text(b.said(), "its image stays on n2 for now: the transfer took too long\n");
}
END_TEST

START_TEST(a_home_without_room_leaves_it_there_and_says_so) {
    Frozen b;
    b.h.free_disk(int64_t{255} << 20);
    b.fetched();
    ck_assert_text(b.text(), "P");
    ck_assert_text(b.said(),
                   "its image stays on n2 for now: its home n1 has 255 MB free on its "
                   "disk, and 256 MB are needed\n");
    b.h.free_disk(int64_t{1} << 30);
    ck_assert_text(b.wait(patience + patience).text(), "P keep n1.2");
}
END_TEST

START_TEST(an_owner_who_lends_again_keeps_it) {
    Frozen b;
    b.wanted(true).wait(s(1));
    ck_assert_text(b.wanted(false).text(), "");
    ck_assert_text(b.wait(s(3'600)).text(), "");
    ck_assert_text(b.fetched().text(), "P keep n1.2");
}
END_TEST

START_TEST(a_home_that_was_started_again_goes_on) {
    Frozen b;
    b.fetched().event("n1", 2, GuestState::prepared);
    Bench again = b.again();
    ck_assert_text(again.text(), "");
    ck_assert_text(again.up("n1").text(), "query n1.2");
    ck_assert_text(again.event("n1", 2, GuestState::frozen).text(), "P drop n2.1");
    // The place for the image was never made.
    Bench lost = b.again();
    ck_assert_text(lost.event("n1", 2, GuestState::unknown).text(), "kill n1.2 P");
    ck_assert_text(lost.job().at.node, "n2");
}
END_TEST

START_TEST(what_is_cancelled_does_not_come_home) {
    Frozen b;
    b.fetched().event("n1", 2, GuestState::prepared);
    ck_assert_text(b.cancel().text(), "kill n1.2 P kill n2.1");
    ck_assert_text(b.event("n1", 2, GuestState::frozen).text(), "drop n1.2");
    ck_assert_text(b.event("n2", 1, GuestState::killed).text(), "P drop n2.1");
}
END_TEST

START_TEST(two_images_come_at_one_time_and_the_next_when_one_is_here) {
    Home h{"n1", Bench::limits()};
    home::Outputs out;
    const auto event = [&](const char* node, uint64_t seq, uint64_t epoch, GuestState state) {
        GuestEvent e;
        e.id = {"n1", seq};
        e.epoch = {epoch};
        e.state = state;
        e.must_leave = state == GuestState::frozen && epoch == 1;
        h.guest_event(node, e, {}, out);
    };
    for (uint64_t seq = 1; seq <= 4; ++seq) {
        Submission sub;
        sub.terms.max_price = Money::units(1);
        ck_assert(h.submit(sub, {}, out).has_value());
        Order o = HomeRig::to("n2", seq);
        o.id = {"n1", seq};
        h.order(o, {}, out);
        event("n2", seq, 1, GuestState::running);
        event("n2", seq, 1, GuestState::frozen);
    }
    const auto keeps = [&](Nanos now) {
        out.clear();
        (void)h.tick(now, out);
        return outputs_text(out);
    };
    ck_assert_text(keeps(patience), "P keep n1.2 P keep n1.2");
    event("n1", 2, 2, GuestState::frozen);
    ck_assert_text(h.find({"n1", 2})->at.node, "n1");
    ck_assert_text(keeps(patience), "P keep n1.2");
    ck_assert_uint_eq(h.find({"n1", 4})->evacuation.epoch.n, 0);
    event("n1", 1, 2, GuestState::failed);
    ck_assert_text(keeps(patience), "P keep n1.2");
    ck_assert_uint_eq(h.find({"n1", 4})->evacuation.epoch.n, 2);
}
END_TEST

START_TEST(what_runs_stands_or_lies_at_home_is_not_fetched) {
    Bench b;
    b.running();
    GuestEvent e;
    e.id = id;
    e.epoch = {1};
    e.state = GuestState::running;
    e.must_leave = true;  // of an image alone
    b.h.guest_event("n2", e, b.now, b.out);
    ck_assert_text(b.wait(s(100)).text(), "");
    b.suspend().in_place("n2", 1);
    ck_assert_text(b.wait(s(100)).text(), "");
    Bench here;
    here.submit().run_on("n1").event("n1", 1, GuestState::running);
    here.suspend().event("n1", 1, GuestState::frozen);
    e.state = GuestState::frozen;
    here.h.guest_event("n1", e, here.now, here.out);
    ck_assert_text(here.wait(s(100)).text(), "");
}
END_TEST

START_TEST(a_node_says_that_an_image_is_to_leave_and_sends_it_to_its_home) {
    Node n;
    ck_assert(!n.must_leave());
    ck_assert_text(n.waits(), "");
    ck_assert_text(n.owner(false).text(), ">frozen");
    ck_assert(n.must_leave());
    ck_assert_text(n.waits(), "waits until its home n1 takes it");
    ck_assert_uint_eq(n.g.here("n2").going, 1);
    ck_assert_text(n.command(GuestVerb::checkpoint).text(), "ship");
    ck_assert_text(n.command(GuestVerb::checkpoint).text(), "");  // it is on its way
    ck_assert_text(n.ended(guest::Shipped{}).text(), "");
    ck_assert_text(n.command(GuestVerb::checkpoint).text(), ">frozen");  // that has all of it
    ck_assert(n.state() == GuestState::frozen);  // until its home has written that down
    ck_assert_text(n.command(GuestVerb::drop).text(), "remove E >unknown");
    n.ended(guest::Removed{});
    ck_assert_uint_eq(n.g.here("n2").all, 0);
}
END_TEST

START_TEST(a_node_says_why_an_image_is_still_there) {
    Node n;
    n.owner(false).command(GuestVerb::checkpoint);
    ck_assert_text(n.waits(), "is sent to n2");
    ck_assert_text(n.ended(guest::ShipFailed{"no room"}).text(), ">frozen(no room)");
    ck_assert(n.must_leave());
    ck_assert_text(n.waits(), "did not get to its home n1: no room");
    ck_assert_text(n.g.here("n2").who,
                   "images are on its disk: n1.1 did not get to its home n1: no room");
    ck_assert_uint_eq(n.g.here("n2").going, 0);  // nobody waits for it
    ck_assert_text(n.command(GuestVerb::checkpoint, 1, 3).text(), "ship");
    n.ended(guest::ShipFailed{"cut"});
    n.home_is_up(false);
    ck_assert_text(n.waits(), "waits: no connection from its home n1");
    ck_assert_text(n.home_is_up(true).text(), ">frozen");
    ck_assert(n.must_leave());
    ck_assert_text(n.owner(true).text(), ">frozen");
    ck_assert(!n.must_leave());
    ck_assert_text(n.waits(), "");
}
END_TEST

START_TEST(what_an_owner_evicts_leaves_though_he_lends) {
    Node n;
    n.end([](Guest& m, guest::Outputs& o) { m.evict(guests::job, "not this one", o); });
    ck_assert(n.must_leave());
    // A daemon that finds it frozen says so, too.
    Node again;
    again.owner(false).recovered(GuestState::frozen, false, {.image_complete = true});
    again.home_is_up(true);
    ck_assert(again.must_leave());
}
END_TEST

UNIT_SUITE(evacuations, an_image_comes_home_and_is_dropped_where_it_was_after_one_write,
           an_order_to_thaw_it_comes_first_and_what_has_come_is_ended,
           what_fails_is_tried_again_after_a_growing_while_and_why_is_said_once,
           a_home_without_room_leaves_it_there_and_says_so, an_owner_who_lends_again_keeps_it,
           a_home_that_was_started_again_goes_on, what_is_cancelled_does_not_come_home,
           two_images_come_at_one_time_and_the_next_when_one_is_here,
           what_runs_stands_or_lies_at_home_is_not_fetched,
           a_node_says_that_an_image_is_to_leave_and_sends_it_to_its_home,
           a_node_says_why_an_image_is_still_there, what_an_owner_evicts_leaves_though_he_lends);

}  // namespace souk::unit
