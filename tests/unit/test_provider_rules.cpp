// SPDX-License-Identifier: GPL-2.0-or-later
// The owner's rules: frames by hand, zones and summer time, prices by the hour, learned prices,
// bans.
#include <vector>

#include "agentd/core/owner_bans.hpp"
#include "agentd/core/provider.hpp"
#include "agentd/store/records.hpp"
#include "kernel/base/json.hpp"
#include "kernel/sys/host/zone.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;

namespace {

constexpr int32_t hour = 3600, day = 24 * hour;
WallTime at(int d, int h, int m = 0) {
    const int32_t s = d * day + h * hour + m * 60;
    return {4 * day + s, s};  // 1970-01-05 was a Monday
}
WallTime in(const char* zone, int64_t unix_s) { return {unix_s, second_of_week(zone, unix_s)}; }

Provider make(const char* frames = "always", int32_t price = 10) {
    ProviderRecord record;
    record.reserve = Money::units(price);
    record.frames = frames;
    auto p = Provider::create("n1", Hardware{4, 8000, {}}, record);
    ck_assert(p.has_value());
    return std::move(*p);
}

void refused(const Status& s, const char* text) {
    ck_assert(!s.has_value());
    ck_assert_text(s.error().message, text);
}

std::string why(const Provider& p) {
    JsonWriter j;
    j.begin_object();
    p.explain(j);
    return j.end_object().take();
}

}  // namespace

START_TEST(frames_are_added_and_taken_away_one_by_one) {
    Provider p = make();
    provider::Outputs out;
    ck_assert(p.add_frame("mon-fri 18:00-8:00", at(0, 9), out));
    ck_assert_text(p.record().frames, "mon-fri 18:00-8:00");
    ck_assert(!p.record().on_market);
    ck_assert(p.add_frame("sun 9:00-20:00", at(0, 9), out));
    ck_assert_uint_eq(p.frames().parts().size(), 2);
    ck_assert(p.remove_frame("1", at(6, 10), out));
    ck_assert_text(p.record().frames, "sun 9:00-20:00");
    ck_assert(p.record().on_market);
    refused(p.remove_frame("sun 9:00-20:00", at(6, 10), out),
            "frames: 'sun 9:00-20:00' is the only one; write pvdctl set frames always, or pvdctl "
            "market off");
    refused(p.remove_frame("3", at(6, 10), out),
            "frames: there is no frame '3'; it has sun 9:00-20:00");
}
END_TEST

START_TEST(frames_that_overlap_or_end_when_they_begin_are_refused_and_the_old_ones_hold) {
    Provider p = make("daily 8:00-12:00");
    provider::Outputs out;
    const ProviderRecord before = p.record();
    refused(p.add_frame("mon 11:00-13:00", at(0, 9), out),
            "frames: frames 'daily 8:00-12:00' and 'mon 11:00-13:00' overlap");
    refused(p.set_frames("sat 22:00-6:00; sun 5:00-7:00", at(0, 9), out),
            "frames: frames 'sat 22:00-6:00' and 'sun 5:00-7:00' overlap");
    refused(p.set_frames("sun 22:00-6:00; mon 0:00-1:00", at(0, 9), out),
            "frames: frames 'mon 0:00-1:00' and 'sun 22:00-6:00' overlap");
    refused(p.set_frames("mon 9:00-9:00", at(0, 9), out),
            "frames: frame 'mon 9:00-9:00' ends when it begins; write 00:00-24:00 for a whole day");
    ck_assert(out.empty());
    ck_assert(p.record() == before);
    ck_assert(p.add_frame("daily 12:00-13:00", at(0, 9), out));  // they may touch
}
END_TEST

START_TEST(an_unknown_zone_is_refused_by_name) {
    refused(known_zone("Europe/Atlantis"),
            "'Europe/Atlantis' is no time zone that this machine knows; write for example "
            "Europe/Berlin (/usr/share/zoneinfo lists them)");
    for (const char* bad : {"/etc/passwd", "../zoneinfo/UTC", "Europe", "Europe/Ber lin"})
        ck_assert(!known_zone(bad));
    for (const char* good : {"", "UTC", "Europe/Berlin", "America/New_York"})
        ck_assert(known_zone(good).has_value());
}
END_TEST

// Ticks on virtual time as the machine asks for them, from one time to another; returns when the
// market was switched on (+) and off (-), as Unix times.
static std::vector<int64_t> switches(Provider& p, const char* zone, int64_t from, int64_t to) {
    std::vector<int64_t> all;
    provider::Outputs out;
    p.started(in(zone, from), out);
    bool on = p.record().on_market;
    for (int64_t now = from; now < to;) {
        const WallTime wall = in(zone, now);
        p.tick(wall, out);
        if (p.record().on_market != on) all.push_back((on = !on) ? now : -now);
        now += p.next_call(wall);
    }
    return all;
}

START_TEST(frames_follow_the_clock_on_the_wall_over_summer_time) {
    // Berlin: 2026-03-29 02:00 -> 03:00 is 01:00 UTC; 2026-10-25 03:00 -> 02:00 is 01:00 UTC.
    constexpr int64_t spring = 1'774'746'000, autumn = 1'792'890'000;
    Provider p = make("daily 22:00-6:00");
    const auto in_spring = switches(p, "Europe/Berlin", spring - 12 * hour, spring + 12 * hour);
    ck_assert_uint_eq(in_spring.size(), 2);
    ck_assert_int_eq(in_spring[0], spring - 4 * hour);     // 22:00 is 21:00 UTC
    ck_assert_int_eq(in_spring[1], -(spring + 3 * hour));  // 6:00 is 04:00 UTC: a night of 7 hours
    Provider q = make("daily 22:00-6:00");
    const auto in_autumn = switches(q, "Europe/Berlin", autumn - 12 * hour, autumn + 12 * hour);
    ck_assert_uint_eq(in_autumn.size(), 2);
    ck_assert_int_eq(in_autumn[0], autumn - 5 * hour);     // 20:00 UTC
    ck_assert_int_eq(in_autumn[1], -(autumn + 4 * hour));  // 05:00 UTC: one of 9 hours
    // A frame within the hour that comes twice holds twice; in the one that is left out, never.
    Provider twice = make("sun 2:15-2:45");
    ck_assert_uint_eq(switches(twice, "Europe/Berlin", autumn - 5 * hour, autumn + 5 * hour).size(),
                      4);
    Provider never = make("sun 2:15-2:45");
    ck_assert_uint_eq(switches(never, "Europe/Berlin", spring - 5 * hour, spring + 5 * hour).size(),
                      0);
}
END_TEST

START_TEST(a_word_by_hand_holds_over_summer_time_until_the_next_edge) {
    constexpr int64_t autumn = 1'792'890'000;
    Provider p = make("daily 20:00-6:00");
    provider::Outputs out;
    const int64_t said = autumn - 6 * hour;  // 21:00, an hour after the frame began
    p.started(in("Europe/Berlin", said), out);
    p.market(false, in("Europe/Berlin", said), out);
    for (int64_t now = said; now < autumn + 4 * hour; now += 600) {
        p.tick(in("Europe/Berlin", now), out);
        ck_assert(!p.record().on_market && p.record().by_hand);
    }
    p.tick(in("Europe/Berlin", autumn + 5 * hour), out);  // 6:00: the edge
    ck_assert(!p.record().by_hand);
}
END_TEST

START_TEST(users_are_warned_so_long_before_a_frame_ends) {
    Provider p = make("daily 8:00-18:00");
    provider::Outputs out;
    p.started(at(0, 9), out);
    ck_assert(p.set_warning(600, at(0, 9), out));
    refused(p.set_warning(-1, at(0, 9), out), "warning -1 is not from 0 to 86400 seconds");
    ck_assert_int_eq(p.report().opens.ns, 0);
    ck_assert_int_eq(p.next_call(at(0, 17, 10)), 2400);
    out.clear();
    p.tick(at(0, 17, 50), out);
    ck_assert_uint_eq(out.size(), 1);
    ck_assert(p.report().on_market);
    ck_assert_int_eq(p.report().opens.ns / 1'000'000'000, at(0, 18).unix_s);
    p.tick(at(0, 18), out);
    ck_assert(!p.report().on_market);
    ck_assert_int_eq(p.report().opens.ns / 1'000'000'000, at(1, 8).unix_s);
}
END_TEST

START_TEST(a_price_curve_says_what_is_asked_at_each_hour_of_the_week) {
    Provider p = make();
    provider::Outputs out;
    p.started(at(0, 7), out);
    ck_assert(p.set_curve("mon-fri 8:00-18:00=40;daily 22:00-6:00 = 5", at(0, 7), out));
    ck_assert_text(p.record().curve, "mon-fri 8:00-18:00 = 40; daily 22:00-6:00 = 5");
    ck_assert_int_eq(p.report().reserve.micro, Money::units(10).micro);
    ck_assert_int_eq(p.next_call(at(0, 7, 30)), 1800);
    out.clear();
    p.tick(at(0, 8), out);
    ck_assert_uint_eq(out.size(), 1);  // told at once
    ck_assert_int_eq(p.report().reserve.micro, Money::units(40).micro);
    p.tick(at(0, 23), out);
    ck_assert_int_eq(p.report().reserve.micro, Money::units(5).micro);
    ck_assert(why(p).find("the price curve, 'daily 22:00-6:00'") != std::string::npos);
    refused(p.set_curve("mon 8:00-9:00 = 4; daily 8:30-8:45 = 5", at(0, 7), out),
            "price curve: frames 'mon 8:00-9:00' and 'daily 8:30-8:45' overlap");
    refused(p.set_curve("mon 8:00-9:00", at(0, 7), out),
            "price curve: 'mon 8:00-9:00' has no price; write for example 'mon-fri 8:00-18:00 = "
            "40'");
    refused(p.set_curve("mon 8:00-9:00 = -3", at(0, 7), out),
            "price curve: 'mon 8:00-9:00 = -3': '-3' is not an amount: use digits such as 40 or "
            "0.25, without sign or unit");
    ck_assert_text(p.record().curve, "mon-fri 8:00-18:00 = 40; daily 22:00-6:00 = 5");
    ck_assert(p.unset("curve", at(0, 23), out));
    ck_assert_int_eq(p.report().reserve.micro, Money::units(10).micro);
}
END_TEST

START_TEST(a_learned_price_is_never_below_the_floor_nor_the_curve) {
    Provider p = make();
    provider::Outputs out;
    p.started(at(0, 7), out);
    ck_assert(p.set_auto(Money::units(3), out));
    ck_assert_int_eq(p.report().reserve.micro, Money::units(3).micro);
    ck_assert(why(p).find("your floor: what is learned is less") != std::string::npos);
    p.learned(Money::units(7), out);
    ck_assert_int_eq(p.report().reserve.micro, Money::units(7).micro);
    ck_assert(why(p).find("learned from the market's prices") != std::string::npos);
    p.learned(Money::units(1), out);
    ck_assert_int_eq(p.report().reserve.micro, Money::units(3).micro);
    ck_assert(p.set_curve("daily 8:00-18:00 = 4", at(0, 9), out));
    ck_assert_int_eq(p.report().reserve.micro, Money::units(4).micro);
    ck_assert_text(p.overrides()[0].value, "auto, at least 3");
    ck_assert(p.set_price(Money::units(2), out));  // a figure of his own ends it
    ck_assert(!p.record().price_auto);
    ck_assert(p.set_auto(Money{}, out) && p.unset("price", at(0, 9), out));
    ck_assert(!p.record().price_auto);
    refused(p.set_auto(Money{-1}, out), "floor -0.000001 is not from 0 to 1000000000");
}
END_TEST

START_TEST(bans_name_users_programs_and_jobs) {
    Provider p = make();
    provider::Outputs out;
    for (const char* who : {"user mallory", "program miner", "user lab/eve", "job n2.7"})
        ck_assert(p.ban(who, out));
    ck_assert_uint_eq(out.size(), 4);
    ck_assert(p.ban("user mallory", out) && out.size() == 4);
    const auto& bans = p.record().bans;
    const auto ban = [&](const char* id, const char* realm, const char* user, const char* program) {
        return std::string(OwnerBans::refuses(bans, {*parse_job_id(id), realm, user, program}));
    };
    ck_assert_text(ban("n1.1", "lab", "mallory", "sh"), "user mallory");
    ck_assert_text(ban("n1.1", "uni", "ann", "/opt/bin/miner"), "program miner");
    ck_assert_text(ban("n1.1", "lab", "eve", "sh"), "user lab/eve");
    ck_assert_text(ban("n1.1", "uni", "eve", "sh"), "");
    ck_assert_text(ban("n2.7", "uni", "ann", "sh"), "job n2.7");
    ck_assert(p.allow("user mallory", out));
    ck_assert_text(ban("n1.1", "lab", "mallory", "sh"), "");
    refused(p.allow("user mallory", out), "allow: 'user mallory' is not banned here");
    refused(p.ban("dog rex", out), "'dog' is not one of user, program, job");
    refused(p.ban("user ", out), "user: a name of at most 256 characters is wanted");
    ck_assert(!p.ban("job n2", out));
}
END_TEST

START_TEST(rules_outlive_a_restart_and_an_older_record_reads_as_none) {
    Provider p = make("daily 8:00-18:00");
    provider::Outputs out;
    ck_assert(p.set_curve("daily 9:00-10:00 = 4", at(0, 9), out) && p.ban("user eve", out));
    ck_assert(p.set_auto(Money::units(3), out) && p.set_zone("Europe/Berlin", at(0, 9), out));
    p.market(false, at(0, 9), out);
    const auto read = wire::unpack<ProviderRecord>(wire::pack(p.record()));
    ck_assert(read.has_value());
    ck_assert(*read == p.record());
    const auto older = wire::unpack<ProviderRecord>(wire::pack(make().record()));
    ck_assert(older.has_value() && older->bans.empty() && older->since_second == -1);
    ck_assert(!older->price_auto && older->curve.empty() && older->zone.empty());
}
END_TEST

UNIT_SUITE(provider_rules, frames_are_added_and_taken_away_one_by_one,
           frames_that_overlap_or_end_when_they_begin_are_refused_and_the_old_ones_hold,
           an_unknown_zone_is_refused_by_name, frames_follow_the_clock_on_the_wall_over_summer_time,
           a_word_by_hand_holds_over_summer_time_until_the_next_edge,
           users_are_warned_so_long_before_a_frame_ends,
           a_price_curve_says_what_is_asked_at_each_hour_of_the_week,
           a_learned_price_is_never_below_the_floor_nor_the_curve,
           bans_name_users_programs_and_jobs,
           rules_outlive_a_restart_and_an_older_record_reads_as_none);
