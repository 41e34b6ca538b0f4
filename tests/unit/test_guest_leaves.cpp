// SPDX-License-Identifier: GPL-2.0-or-later
// A guest that leaves a node need not hurry if its job would not run sooner otherwise.
#include "tests/unit/guest_bench.hpp"

namespace souk::unit {
namespace {

using namespace guests;

// The flag no_hurry of the newest dump_to_disk or ship; nullopt if there was none.
std::optional<bool> no_hurry(const guests::Bench& b) {
    std::optional<bool> said;
    for (const auto& o : b.out)
        if (const auto* d = std::get_if<guest::Do>(&o);
            d && (d->what == What::dump_to_disk || d->what == What::ship))
            said = d->no_hurry;
    return said;
}

guests::Bench& pause(guests::Bench& b) {
    b.end([](Guest& g, guest::Outputs& o) { g.set_paused({CauseCode::owner_uses, "he is"}, o); });
    return b.ended(guest::Paused{true});
}

// Plays a move up to the command to send the image.
std::optional<bool> moved(guests::Bench& b) {
    b.command(GuestVerb::prepare_dump).criu_ready();
    b.command(GuestVerb::ship).sent_precopy();
    return no_hurry(b.dump_held());
}

}  // namespace

START_TEST(a_job_that_runs_until_it_is_moved_does_not_stand_longer_for_it) {
    guests::Bench b;
    b.running();
    ck_assert(moved(b) == false);
}
END_TEST

START_TEST(a_job_that_stands_for_the_owner_may_go_slowly) {
    guests::Bench b;
    pause(b.running());
    ck_assert(moved(b) == true);
}
END_TEST

START_TEST(a_freeze_to_disk_may_be_slow_and_so_may_the_way_of_its_image) {
    guests::Bench b;
    b.running().command(GuestVerb::freeze);
    ck_assert(no_hurry(b.criu_ready()) == true);
    b.dump_held().gone();
    ck_assert(b.state() == GuestState::frozen);
    ck_assert(no_hurry(b.command(GuestVerb::ship)) == true);
}
END_TEST

START_TEST(the_others_of_a_gang_do_not_wait_for_a_slow_one) {
    guests::Bench b;
    pause(b.running());
    GuestCommand c;
    c.id = job;
    c.epoch = {1};
    c.new_epoch = {7};
    c.verb = GuestVerb::prepare_dump;
    for (const GuestVerb verb : {GuestVerb::prepare_dump, GuestVerb::freeze}) {
        c.verb = verb;
        c.cut = Cut::freeze;
        b.out.clear();
        b.g.command("n1", c, b.out);
        if (verb == GuestVerb::prepare_dump) b.criu_ready();
    }
    ck_assert(no_hurry(b) == false);
}
END_TEST

START_TEST(what_is_to_leave_is_known_as_far_as_it_can_go) {
    guests::Bench b;
    b.running();
    ck_assert(!b.g.is_to_leave(key, "n2"));
    b.end([](Guest& g, guest::Outputs& o) { g.set_accepting(false, {}, o); });
    ck_assert(b.g.is_to_leave(key, "n2"));
    b.command(GuestVerb::freeze).criu_ready().dump_held().gone();
    ck_assert(!b.g.is_to_leave(key, "n2"));  // its home is away
    b.end([](Guest& g, guest::Outputs& o) { g.home_up("n1", o); });
    ck_assert(b.g.is_to_leave(key, "n2") && !b.g.is_to_leave(key, "n1"));
    b.end([](Guest& g, guest::Outputs& o) { g.set_accepting(true, {}, o); });
    ck_assert(!b.g.is_to_leave(key, "n2"));
}
END_TEST

UNIT_SUITE(guest_leaves, a_job_that_runs_until_it_is_moved_does_not_stand_longer_for_it,
           a_job_that_stands_for_the_owner_may_go_slowly,
           a_freeze_to_disk_may_be_slow_and_so_may_the_way_of_its_image,
           the_others_of_a_gang_do_not_wait_for_a_slow_one,
           what_is_to_leave_is_known_as_far_as_it_can_go);

}  // namespace souk::unit
