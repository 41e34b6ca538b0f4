// SPDX-License-Identifier: GPL-2.0-or-later
// Method: signs of use at random times, and a plain model of what the owner was promised.
#include "agentd/core/owner_use.hpp"
#include "kernel/base/rng.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {

using Return = OwnerUsePolicy::Return;
using Rung = OwnerUse::Rung;
constexpr Nanos s(int64_t n) { return Nanos::from_s(n); }

}  // namespace

START_TEST(an_owner_who_configures_nothing_changes_nothing) {
    OwnerUse p({});
    p.used(s(1), "load");
    ck_assert(!p.here() && p.rung() == Rung::none && p.next() == Nanos::never());
}
END_TEST

START_TEST(guests_are_lowered_at_once_then_leave_and_are_as_before_when_he_is_away) {
    OwnerUse p({Return::leave, s(300), s(60), s(60)});
    ck_assert(p.next() == Nanos::never());
    p.used(s(10), "load");
    ck_assert(p.here() && p.rung() == Rung::lowered && p.next() == s(310));
    p.used(s(20), "wait");
    ck_assert_text(p.why(), "load");
    p.tick(s(69));
    ck_assert(p.rung() == Rung::lowered);
    p.tick(s(70));
    ck_assert(p.rung() == Rung::lowered);  // nothing since 20: it may have been a short burst
    p.used(s(71), "load");
    ck_assert(p.rung() == Rung::leaving && p.next() == s(371) && p.since() == s(10));
    p.tick(s(370));
    ck_assert(p.here());
    p.tick(s(371));
    ck_assert(!p.here() && p.rung() == Rung::none && p.why().empty());
    p.used(s(400), "wait");
    ck_assert_text(p.why(), "wait");
    ck_assert(p.rung() == Rung::lowered && p.since() == s(400));
}
END_TEST

START_TEST(who_goes_before_guests_had_to_leave_keeps_them) {
    OwnerUse p({Return::leave, s(30), s(60), s(60)});
    p.used(s(0), "load");
    p.tick(s(1000));  // a daemon that was held up
    ck_assert(!p.here() && p.rung() == Rung::none);
    OwnerUse at_once({Return::leave, s(30), s(0)});
    at_once.used(s(5), "load");
    ck_assert(at_once.rung() == Rung::leaving);
    OwnerUse lower({Return::lower, s(30), s(0)});
    lower.used(s(5), "load");
    ck_assert(lower.rung() == Rung::lowered && lower.next() == s(35));
}
END_TEST

START_TEST(guests_are_stopped_before_they_leave_and_go_on_when_he_is_away) {
    OwnerUse p({Return::leave, s(300), s(60), s(5)});
    p.used(s(10), "load");
    ck_assert(p.rung() == Rung::lowered);
    p.used(s(15), "load");
    ck_assert(p.rung() == Rung::stopped);
    p.used(s(71), "load");
    ck_assert(p.rung() == Rung::leaving);
    p.tick(s(371));
    ck_assert(p.rung() == Rung::none);
    OwnerUse stays({Return::stop, s(300), s(60), s(0)});
    stays.used(s(10), "load");
    stays.used(s(100), "load");
    ck_assert(stays.rung() == Rung::stopped);
}
END_TEST

START_TEST(another_configuration_keeps_the_rung_as_far_as_it_knows_it) {
    OwnerUse p({Return::leave, s(300), s(60), s(5)});
    p.used(s(10), "load");
    p.used(s(15), "load");
    p.configured({Return::leave, s(30), s(600), s(500)});
    ck_assert(p.rung() == Rung::stopped && p.next() == s(45));
    p.configured({Return::lower, s(30), s(600), s(500)});
    ck_assert(p.rung() == Rung::lowered && p.here());
    p.configured({Return::nothing, s(30), s(600), s(500)});
    ck_assert(p.rung() == Rung::none && !p.here() && p.why().empty());
    p.configured({Return::stop, s(30), s(600), s(500)});
    p.used(s(20), "wait");
    ck_assert(p.rung() == Rung::lowered && p.since() == s(20));
}
END_TEST

START_TEST(guests_that_are_found_stopped_stay_so_until_he_is_away) {
    OwnerUse p({Return::stop, s(30), s(60), s(500)});
    p.found_stopped(s(1), "before");
    ck_assert(p.rung() == Rung::stopped && p.next() == s(31));
    OwnerUse lower({Return::lower, s(30), s(60), s(0)});
    lower.found_stopped(s(1), "before");
    ck_assert(lower.rung() == Rung::lowered);
    OwnerUse nothing({});
    nothing.found_stopped(s(1), "before");
    ck_assert(nothing.rung() == Rung::none);
}
END_TEST

START_TEST(whatever_signs_come_he_is_here_just_as_long_as_promised) {
    for (uint64_t seed = 1; seed <= 500; ++seed) {
        Rng rng(seed);
        constexpr Return returns[] = {Return::lower, Return::stop, Return::leave};
        const OwnerUsePolicy policy{
            returns[rng.below(3)], s(1 + static_cast<int64_t>(rng.below(50))),
            s(static_cast<int64_t>(rng.below(100))), s(static_cast<int64_t>(rng.below(100)))};
        OwnerUse p(policy);
        Nanos now, last = s(-1'000'000), since;
        for (int step = 0; step < 300; ++step) {
            now += s(static_cast<int64_t>(rng.below(40)));
            // The model: by what was promised of the signs so far.
            const bool gone = now >= last + policy.away;
            if (rng.below(3) == 0) {
                if (gone) since = now;
                last = now;
                p.used(now, "load");
            } else {
                p.tick(now);
            }
            const bool here = now < last + policy.away;
            ck_assert_msg(p.here() == here, "seed %lu step %d", seed, step);
            const bool leaves = policy.on_return == Return::leave && last >= since + policy.leave;
            const bool stops = policy.on_return >= Return::stop && last >= since + policy.stop;
            const Rung rung = !here    ? Rung::none
                              : leaves ? Rung::leaving
                              : stops  ? Rung::stopped
                                       : Rung::lowered;
            ck_assert_msg(p.rung() == rung, "seed %lu step %d", seed, step);
            ck_assert(p.next() > now);
            ck_assert(here == (p.next() != Nanos::never()));
        }
    }
}
END_TEST

UNIT_SUITE(owner_use, an_owner_who_configures_nothing_changes_nothing,
           guests_are_lowered_at_once_then_leave_and_are_as_before_when_he_is_away,
           who_goes_before_guests_had_to_leave_keeps_them,
           guests_are_stopped_before_they_leave_and_go_on_when_he_is_away,
           another_configuration_keeps_the_rung_as_far_as_it_knows_it,
           guests_that_are_found_stopped_stay_so_until_he_is_away,
           whatever_signs_come_he_is_here_just_as_long_as_promised);

}  // namespace souk::unit
