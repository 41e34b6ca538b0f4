// SPDX-License-Identifier: GPL-2.0-or-later
#include <vector>

#include "agentd/core/provider.hpp"
#include "kernel/base/rng.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;

namespace {

constexpr int32_t hour = 3600, day = 24 * hour;
constexpr int64_t monday_unix = 4 * day;  // 1970-01-05 was a Monday; the tests live in UTC
WallTime at(int d, int h, int m = 0, int week = 0) {
    const int32_t s = d * day + h * hour + m * 60;
    return {monday_unix + int64_t{week} * week_s + s, s};
}

Provider make(const std::string& frames = "always", bool on = true) {
    ProviderRecord record;
    record.reserve = Money::units(10);
    record.cpus = 4;
    record.memory_mb = 1000;
    record.frames = frames;
    record.on_market = on;
    auto p = Provider::create("n1", Hardware{4, 8000, {"x86_64", "6.18", "4.2", 4096, "fpu sse2"}},
                              record);
    ck_assert(p.has_value());
    return std::move(*p);
}

// Prints the outputs of a step in order: P persist, R report, + accepting, - not accepting.
std::string shape(const provider::Outputs& out) {
    std::string s;
    for (const auto& o : out) {
        if (std::holds_alternative<provider::Persist>(o)) s += 'P';
        if (std::holds_alternative<provider::Report>(o)) s += 'R';
        if (const auto* a = std::get_if<provider::Accepting>(&o)) s += a->accepting ? '+' : '-';
    }
    return s;
}

}  // namespace

START_TEST(frames_say_when_they_hold_and_when_that_ends) {
    const auto f = TimeFrames::parse(" daily 08:00-22:00 ");
    ck_assert(f.has_value());
    ck_assert_text(f->text(), "daily 08:00-22:00");
    ck_assert(!f->contains(8 * hour - 1));
    ck_assert(f->contains(8 * hour));
    ck_assert(f->contains(6 * day + 22 * hour - 1));
    ck_assert(!f->contains(6 * day + 22 * hour));
    ck_assert_int_eq(f->to_next_edge(0), 8 * hour);
    ck_assert_int_eq(f->to_next_edge(8 * hour), 14 * hour);
    ck_assert_int_eq(f->to_next_edge(6 * day + 23 * hour), 9 * hour);  // over the end of the week
}
END_TEST

START_TEST(frames_cross_midnight_and_the_end_of_the_week) {
    const auto f = TimeFrames::parse("fri-sun 22:00-06:00; tue,thu 12:00-24:00;wed 00:00-01:30");
    ck_assert(f.has_value());
    ck_assert(f->contains(6 * day + 23 * hour));
    ck_assert(f->contains(5 * hour));  // Monday, from Sunday's frame
    ck_assert(!f->contains(6 * hour));
    ck_assert(!f->contains(1 * day + 5 * hour));
    ck_assert_int_eq(f->to_next_edge(6 * day + 22 * hour), 8 * hour);  // Sunday midnight is no edge
    // Tuesday's touches Wednesday's
    ck_assert_int_eq(f->to_next_edge(1 * day + 12 * hour), 13 * hour + 1800);
}
END_TEST

START_TEST(frames_that_cover_the_week_are_always) {
    for (const char* text : {"always", "daily 00:00-24:00", "00:00-00:00", "daily 12:00-12:00",
                             "daily 00:00-13:00;12:00-24:00"}) {
        const auto f = TimeFrames::parse(text);
        ck_assert_msg(f.has_value() && f->always(), "%s", text);
        ck_assert_int_eq(f->to_next_edge(1234), 0);
    }
}
END_TEST

START_TEST(edges_agree_with_a_walk_over_the_week) {
    // Nothing changes before the edge, for random frames and times, and at both ends of the week.
    Rng rng(7);
    const char* days[] = {"mon", "tue", "wed", "thu", "fri", "sat", "sun"};
    for (int i = 0; i < 300; ++i) {
        std::string text;
        for (int64_t n = rng.between(1, 3); n > 0; --n) {
            char frame[64];
            snprintf(frame, sizeof frame, "%s-%s %02d:%02d-%02d:%02d", days[rng.below(7)],
                     days[rng.below(7)], int(rng.below(24)), int(rng.below(60)), int(rng.below(24)),
                     int(rng.below(60)));
            text += (text.empty() ? "" : ";") + std::string(frame);
        }
        const auto f = TimeFrames::parse(text);
        ck_assert_msg(f.has_value(), "%s", text.c_str());
        if (f->always()) continue;
        for (const int32_t from : {int32_t(rng.below(week_s)), 0, week_s - 1}) {
            const int32_t edge = f->to_next_edge(from);
            for (int32_t s = 0; s < edge; s += 30)
                ck_assert(f->contains((from + s) % week_s) == f->contains(from));
            ck_assert(f->contains((from + edge - 1) % week_s) == f->contains(from));
            ck_assert(f->contains((from + edge) % week_s) != f->contains(from));
        }
    }
}
END_TEST

START_TEST(an_hour_may_have_one_digit) {
    const auto f = TimeFrames::parse("mon-fri 8:00-9:30"),
               same = TimeFrames::parse("mon-fri 08:00-09:30");
    ck_assert(f.has_value() && same.has_value());
    for (int32_t s = 0; s < week_s; s += 60) ck_assert(f->contains(s) == same->contains(s));
    ck_assert_text(f->text(), "mon-fri 8:00-9:30");
}
END_TEST

START_TEST(bad_frames_are_refused_with_the_part_that_is_wrong) {
    for (const char* text :
         {"", " ", ";", "daily", "daily :00-22:00", "daily 8:0-22:00", "daily 8.00-22:00", "08:00",
          "08:00-25:00", "24:00-08:00", "08:60-09:00", "daily 08:00-22:00;",
          "mon-funday 08:00-22:00", "mon, 08:00-09:00", ",mon 08:00-09:00", "mon--tue 08:00-09:00",
          "Daily 08:00-22:00", "daily 08:00 - 22:00", "daily 08:00-22:00 x"})
        ck_assert_msg(!TimeFrames::parse(text).has_value(), "took '%s'", text);
    ck_assert_text(TimeFrames::parse("mon-funday 08:00-22:00").error().message,
                   "'funday' is no day; days are mon tue wed thu fri sat sun, or daily");
    ck_assert(!TimeFrames::parse(std::string(5000, 'x')).has_value());
}
END_TEST

START_TEST(the_edges_of_a_frame_switch_the_market_on_and_off) {
    Provider p = make("daily 08:00-22:00");
    provider::Outputs out;
    p.started(at(0, 3), out);
    ck_assert_text(shape(out), "PR-");
    out.clear();
    ck_assert_int_eq(p.tick(at(0, 3), out), hour);  // at most an hour: the clock may be set
    ck_assert_int_eq(p.tick(at(0, 7, 30), out), 1800);
    ck_assert_text(shape(out), "");
    ck_assert_int_eq(p.tick(at(0, 8), out), hour);
    ck_assert_text(shape(out), "PR+");
    ck_assert(p.record().on_market && !p.record().by_hand);
    out.clear();
    p.tick(at(0, 22), out);
    ck_assert_text(shape(out), "PR-");
    ck_assert(!std::get<provider::Accepting>(out.back()).why.empty());
}
END_TEST

START_TEST(the_edges_of_frames_that_are_set_while_it_runs_come_by_themselves) {
    // The test calls the provider as the shell does: it asks after each call when the next one is
    // due, and comes then.
    Provider p = make();
    provider::Outputs out;
    p.started(at(0, 9), out);
    ck_assert_int_eq(p.next_call(at(0, 9)), 0);
    ck_assert(p.set_frames("daily 12:00-13:00", at(0, 9), out).has_value());
    ck_assert(!p.record().on_market);
    WallTime now = at(0, 9);
    std::vector<int64_t> edges;
    for (int calls = 0; calls < 20; ++calls) {
        const bool was = p.record().on_market;
        const int64_t wait = p.next_call(now);
        ck_assert_int_gt(wait, 0);
        now.unix_s += wait;
        now.second_of_week = static_cast<int32_t>((now.second_of_week + wait) % week_s);
        p.tick(now, out);
        if (p.record().on_market != was) edges.push_back(now.second_of_week);
    }
    ck_assert_uint_ge(edges.size(), 2);
    ck_assert_int_eq(edges[0], 12 * hour);
    ck_assert_int_eq(edges[1], 13 * hour);
    ck_assert(p.set_frames("always", now, out).has_value());
    ck_assert_int_eq(p.next_call(now), 0);
}
END_TEST

START_TEST(a_word_by_hand_holds_until_the_next_edge) {
    Provider p = make("daily 08:00-22:00");
    provider::Outputs out;
    p.started(at(0, 9), out);
    p.market(false, at(0, 9, 30), out);
    p.tick(at(0, 10), out);
    ck_assert(!p.record().on_market);
    p.tick(at(0, 22), out);  // an edge, though nothing changes by it
    ck_assert(!p.record().on_market && !p.record().by_hand);
    p.market(true, at(0, 23), out);
    p.tick(at(1, 7), out);
    ck_assert(p.record().on_market);
    p.tick(at(1, 22), out);
    ck_assert(!p.record().on_market);
}
END_TEST

START_TEST(a_word_by_hand_outlives_a_restart_but_not_an_edge) {
    Provider p = make("daily 08:00-22:00");
    provider::Outputs out;
    p.started(at(0, 9), out);
    p.market(false, at(0, 9, 30), out);
    const auto again = [&](WallTime wall) {
        auto q = Provider::create("n1", p.machine(), p.record());
        ck_assert(q.has_value());
        provider::Outputs unused;
        q->started(wall, unused);
        return q->record().on_market;
    };
    ck_assert(!again(at(0, 21)));
    ck_assert(again(at(1, 9)));        // down over two edges: inside again, by itself
    ck_assert(again(at(0, 9, 0, 3)));  // weeks later
}
END_TEST

START_TEST(without_frames_the_owners_word_stays) {
    Provider p = make();
    provider::Outputs out;
    p.started(at(0, 9), out);
    ck_assert_text(shape(out), "R+");
    p.market(false, at(0, 9), out);
    ck_assert_int_eq(p.tick(at(3, 9), out), 0);
    ck_assert(!p.record().on_market && !p.record().by_hand);
}
END_TEST

START_TEST(setters_take_what_the_machine_has_and_nothing_else) {
    Provider p = make();
    provider::Outputs out;
    const auto refused = [&](const Status& s, const char* text) {
        ck_assert(!s.has_value());
        ck_assert_text(s.error().message, text);
    };
    refused(p.set_price(Money{-1}, out), "price -0.000001 is not from 0 to 1000000000");
    refused(p.set_price(money_max + Money{1}, out),
            "price 1000000000.000001 is not from 0 to 1000000000");
    refused(p.set_speed(0, out), "speed 0 is not from 1 to 16383; 100 is a standard machine");
    refused(p.set_speed(16'384, out),
            "speed 16384 is not from 1 to 16383; 100 is a standard machine");
    refused(p.set_cpus(5, out), "cpus 5 is not from 1 to 4, which is what this machine has");
    refused(p.set_memory(8001, out),
            "memory 8001 is not from 1 to 8000 MB, which is what this machine has");
    ck_assert(!p.set_frames("sometimes", at(0, 0), out).has_value());
    ck_assert_text(shape(out), "");
    ck_assert(p.record() == make().record());
    ck_assert(p.set_price(Money{}, out) && p.set_speed(provider_speed_max, out) &&
              p.set_cpus(1, out) && p.set_memory(8000, out));
    ck_assert_text(shape(out), "PRPRPRPR");
    ck_assert(p.set_memory(8000, out));
    ck_assert_text(shape(out), "PRPRPRPR");  // no change, no word
    ck_assert(p.set_frames("daily 08:00-22:00", at(0, 23), out));
    ck_assert_text(shape(out), "PRPRPRPRPR-");
}
END_TEST

START_TEST(a_record_of_a_larger_machine_is_cut_down) {
    ProviderRecord record;
    record.cpus = 64;
    record.memory_mb = 1 << 20;
    const auto p = Provider::create("n1", Hardware{2, 4000, {}}, record);
    ck_assert(p.has_value());
    ck_assert_int_eq(p->record().cpus, 2);
    ck_assert_int_eq(p->record().memory_mb, 4000);
    record.speed = 0;
    ck_assert(!Provider::create("n1", Hardware{2, 4000, {}}, record).has_value());
}
END_TEST

START_TEST(what_the_owner_set_holds_over_the_configuration_until_it_is_unset) {
    ProviderRecord file;
    file.reserve = Money::units(1);
    file.cpus = 4;
    file.memory_mb = 1000;
    const Hardware machine{4, 8000, {}};
    provider::Outputs out;
    Provider before = *Provider::create("n1", machine, file);
    before.started(at(0, 0), out);
    ck_assert(before.set_price(Money::units(15), out));
    before.market(false, at(0, 1), out);
    ck_assert_int_eq(before.overrides().size(), 2);

    // The file is edited and the daemon started again. Values that were set by hand stay, and the
    // others follow the file.
    file.reserve = Money::units(2);
    file.speed = 50;
    Provider after = *Provider::create("n1", machine, file, before.record());
    after.started(at(0, 2), out);
    ck_assert(after.record().reserve == Money::units(15));
    ck_assert_int_eq(after.record().speed, 50);
    ck_assert(!after.record().on_market);
    const std::vector<Provider::Override> differ = {{"price", "15", "2"}, {"market", "off", "on"}};
    ck_assert(after.overrides() == differ);

    out.clear();
    ck_assert(after.unset("price", at(0, 3), out));
    ck_assert(after.unset("market", at(0, 3), out));
    ck_assert(!after.unset("colour", at(0, 3), out));
    ck_assert_text(shape(out), "PRPR+");
    ck_assert(after.record().reserve == Money::units(2));
    ck_assert(after.record().on_market && after.overrides().empty());
    // They also stay after another edit.
    file.reserve = Money::units(3);
    ck_assert(Provider::create("n1", machine, file, after.record())->record().reserve ==
              Money::units(3));
}
END_TEST

START_TEST(of_an_older_record_all_that_differs_counts_as_set) {
    ProviderRecord file, kept;
    file.speed = 100;
    kept.speed = 70;
    kept.set = 0;
    const auto p = Provider::create("n1", Hardware{4, 8000, {}}, file, kept);
    ck_assert(p.has_value());
    ck_assert_int_eq(p->record().speed, 70);
    const std::vector<Provider::Override> differ = {{"speed", "70", "100"}};
    ck_assert(p->overrides() == differ);
}
END_TEST

START_TEST(frames_that_were_set_go_back_to_those_of_the_configuration) {
    ProviderRecord file;
    file.frames = "daily 08:00-22:00";
    Provider p = *Provider::create("n1", Hardware{4, 8000, {}}, file);
    provider::Outputs out;
    p.started(at(0, 12), out);
    ck_assert(p.record().on_market);
    ck_assert(p.set_frames("daily 20:00-22:00", at(0, 12), out));
    ck_assert(!p.record().on_market);
    ck_assert(p.unset("frames", at(0, 12), out));
    ck_assert(p.record().on_market);
    ck_assert_text(p.record().frames, "daily 08:00-22:00");
    ck_assert(p.overrides().empty());
}
END_TEST

START_TEST(under_frames_whether_the_market_is_on_is_no_setting_and_the_rest_is) {
    Provider p = make("daily 08:00-22:00");
    provider::Outputs out;
    p.started(at(0, 12), out);
    p.market(false, at(0, 12), out);
    ck_assert(p.set_speed(50, out));
    const std::vector<Provider::Override> speed = {{"speed", "50", "100"}};
    ck_assert(p.overrides() == speed);
    Provider free = make();
    free.started(at(0, 12), out);
    free.market(false, at(0, 12), out);
    ck_assert_uint_eq(free.overrides().size(), 1);
    ck_assert_text(free.overrides()[0].name, "market");
}
END_TEST

START_TEST(load_is_reported_when_it_is_worth_it) {
    Provider p = make();
    provider::Outputs out;
    const auto told = [&](const LoadReading& load, int64_t ms) {
        out.clear();
        p.set_load(load, Nanos::from_ms(ms), out);
        return shape(out) == "R";
    };
    ck_assert(told({4000, 100, 0, "bpf"}, 0));
    ck_assert(!told({4000, 900, 0, "bpf"}, 500));  // too soon
    ck_assert(told({4000, 900, 0, "bpf"}, 1000));
    ck_assert(!told({4000, 910, 0, "bpf"}, 3000));   // not worth it
    ck_assert(told({4000, 910, 0, "bpf"}, 31'000));  // but every half minute
    ck_assert(!told({4000, 910, 0, "bpf"}, 90'000));
    ck_assert(told({3500, 910, 0, "bpf"}, 91'000));
    ck_assert(told({3500, 910, 0, "proc"}, 92'000));
    out.clear();
    p.market_up(out);
    const auto& r = std::get<provider::Report>(out.at(0)).report;
    ck_assert_int_eq(r.free_mb, 1000);  // never more than is offered
    ck_assert_int_eq(r.load_permille, 910);
    ck_assert_text(r.machine.kernel, "6.18");
}
END_TEST

START_TEST(a_node_that_cannot_take_jobs_says_so_and_takes_none) {
    Provider p = make();
    provider::Outputs out;
    p.started(at(0, 0), out);
    out.clear();
    p.set_cannot("no CRIU", out);
    p.set_cannot("no CRIU", out);
    ck_assert_text(shape(out), "R-");
    ck_assert_text(std::get<provider::Accepting>(out.back()).why, "no CRIU");
    out.clear();
    p.set_cannot("", out);
    ck_assert_text(shape(out), "R+");
}
END_TEST

START_TEST(guests_leave_a_node_whose_owner_uses_it) {
    Provider p = make();
    provider::Outputs out;
    p.started(at(0, 0), out);
    p.set_leaving("its owner uses it", out);
    const ProviderReport report = p.report();
    ck_assert(!report.on_market && p.record().on_market);
    ck_assert_text(report.cannot, "its owner uses it");
    p.set_leaving("", out);
    ck_assert(p.report().on_market && p.report().cannot.empty());
}
END_TEST

UNIT_SUITE_LONG(
    provider, 300, under_frames_whether_the_market_is_on_is_no_setting_and_the_rest_is,
    the_edges_of_frames_that_are_set_while_it_runs_come_by_themselves,
    frames_say_when_they_hold_and_when_that_ends, frames_cross_midnight_and_the_end_of_the_week,
    frames_that_cover_the_week_are_always, edges_agree_with_a_walk_over_the_week,
    an_hour_may_have_one_digit, bad_frames_are_refused_with_the_part_that_is_wrong,
    the_edges_of_a_frame_switch_the_market_on_and_off, a_word_by_hand_holds_until_the_next_edge,
    a_word_by_hand_outlives_a_restart_but_not_an_edge, without_frames_the_owners_word_stays,
    setters_take_what_the_machine_has_and_nothing_else, a_record_of_a_larger_machine_is_cut_down,
    what_the_owner_set_holds_over_the_configuration_until_it_is_unset,
    of_an_older_record_all_that_differs_counts_as_set,
    frames_that_were_set_go_back_to_those_of_the_configuration,
    load_is_reported_when_it_is_worth_it, guests_leave_a_node_whose_owner_uses_it,
    a_node_that_cannot_take_jobs_says_so_and_takes_none);
