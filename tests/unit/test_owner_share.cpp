// SPDX-License-Identifier: GPL-2.0-or-later
// An owner leaves a share of the node to guests: rules as text, and what follows from them at each
// moment.
#include "agentd/core/owner_share.hpp"

#include "agentd/core/provider.hpp"
#include "agentd/store/records.hpp"
#include "kernel/base/json.hpp"
#include "kernel/base/rng.hpp"
#include "tests/unit/loop_fixture.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {

constexpr MachineSize machine{8'000, 16'000};
constexpr int32_t hour = 3'600;
WallTime at(int32_t second) { return {4 * 24 * hour + second, second}; }

OwnerShare share_of(const std::string& text) {
    auto share = OwnerShare::parse(text);
    ck_assert_msg(share.has_value(), "%s: %s", text.c_str(),
                  share ? "" : share.error().message.c_str());
    OK(share->fits(machine));
    return std::move(*share);
}

Provider lender(const char* share = "", int32_t cpus = 8) {
    ProviderRecord record;
    record.cpus = cpus;
    record.memory_mb = 12'000;
    record.speed = 90;
    record.share = share;
    auto p = Provider::create("n1", Hardware{8, 16'000, {}}, record);
    ck_assert(p.has_value());
    provider::Outputs out;
    p->started(at(0), out);
    return std::move(*p);
}

// The meaning of a rule as numbers; below 0: the rule says nothing of it.
struct Meant {
    bool here = false;
    int32_t from = 0, to = 0;  // seconds of each day
    int64_t cpu_milli = -1, memory_mb = -1;
};

}  // namespace

START_TEST(a_share_is_a_part_or_a_number_of_cpus_and_memory) {
    const struct {
        const char* text;
        MachineSize got;
    } all[] = {{"here = 50%", {4'000, 8'000}},
               {"here = 0.5 cpus", {500, 16'000}},
               {"here=0.5cpus,25% memory", {0, 0}},
               {"here = 0.5 cpus, 25% memory", {500, 4'000}},
               {"here = 2G memory", {8'000, 2'048}},
               {"here = 12.5 % cpus", {1'000, 16'000}},
               {"here = 100%", machine},
               {"always = 1 cpu", {1'000, 16'000}},
               {"here = 50%; always = 3 cpus, 75% memory", {3'000, 8'000}}};
    for (const auto& one : all) {
        if (one.got.cpu_milli == 0) {
            ck_assert(!OwnerShare::parse(one.text));
            continue;
        }
        const OwnerShare share = share_of(one.text);
        const MachineSize got = share.of(machine, machine, 0, true);
        ck_assert_int_eq(got.cpu_milli, one.got.cpu_milli);
        ck_assert_int_eq(got.memory_mb, one.got.memory_mb);
        ck_assert_text(share_of(share.text()).text(), share.text());
    }
    const OwnerShare none = share_of(" ");
    ck_assert(none.empty() && !none.when_here() &&
              none.of(machine, {1'000, 7}, 5, true).memory_mb == 7);
}
END_TEST

START_TEST(what_is_no_share_is_refused_with_the_rule_and_the_reason) {
    const struct {
        const char *text, *why;
    } all[] = {
        {"here = 101%", "share: 'here = 101%': 101% is more than 100%"},
        {"here = 100.001% cpus", "share: 'here = 100.001% cpus': 100.001% is more than 100%"},
        {"here = -5%", "share: 'here = -5%': '-5%' is no share: 1% to 100% are"},
        {"here = 0%",
         "share: 'here = 0%': 0% leaves guests nothing: frames, or owner_return, "
         "keep them away"},
        {"here = half",
         "share: 'here = half': 'half' is no share; write for example 'here = 0.5 "
         "cpus, 50% memory'"},
        {"here = half cpus", "share: 'here = half cpus': 'half' is no number of CPUs"},
        {"here = -1 cpus", "share: 'here = -1 cpus': '-1' is no number of CPUs"},
        {"here 50%",
         "share: 'here 50%' has no '='; write for example 'here = 0.5 cpus, 50% "
         "memory'"},
        {"here = 50% disks", "share: 'here = 50% disks': 'disks' is not one of cpus, memory"},
        {"here = 50%, 2 cpus", "share: 'here = 50%, 2 cpus': CPUs are said twice"},
        {"someday 9:00-10:00 = 50%",
         "share: 'someday 9:00-10:00 = 50%': 'someday' is no day; days "
         "are mon tue wed thu fri sat sun, or daily"},
    };
    for (const auto& one : all) {
        const auto share = OwnerShare::parse(one.text);
        ck_assert_msg(!share, "took '%s'", one.text);
        ck_assert_text(share.error().message, one.why);
    }
    for (const char* bad : {"here =", "here = ,", "here = 50%;", ";", "here = 5e1%", "here = 50%%",
                            "here = 1.2345 cpus", "here = .5 cpus", "here = 1. cpus", "= 50%",
                            "here = 99999999999 cpus", "here = nan cpus", "here = 0M memory"})
        ck_assert_msg(!OwnerShare::parse(bad), "took '%s'", bad);
    ck_assert(!OwnerShare::parse(std::string(5'000, 'x')));
    ck_assert_text(OwnerShare::parse("here = 9 cpus")->fits(machine).error().message,
                   "share: 'here = 9 cpus': this machine has 8 CPUs");
    ck_assert_text(OwnerShare::parse("here = 0.009 cpus")->fits(machine).error().message,
                   "share: 'here = 0.009 cpus': less than a hundredth of a CPU is no share");
}
END_TEST

// Compares the shares with the rules' numbers, second for second.
START_TEST(the_least_of_all_rules_that_hold_holds_and_nothing_more_at_every_moment) {
    Rng rng(19);
    for (int run = 0; run < 200; ++run) {
        std::vector<Meant> meant;
        std::string text;
        for (int64_t n = rng.between(1, 4); n > 0; --n) {
            Meant m;
            m.here = rng.chance(0.4);
            std::string when = "here";
            if (!m.here) {
                m.from = static_cast<int32_t>(rng.between(0, 22)) * hour;
                m.to = static_cast<int32_t>(rng.between(m.from / hour + 1, 23)) * hour;
                when = "daily " + std::to_string(m.from / hour) + ":00-" +
                       std::to_string(m.to / hour) + ":00";
            }
            const int64_t percent = rng.between(1, 100);
            std::string amount;
            if (rng.chance(0.5)) {
                m.cpu_milli = machine.cpu_milli * percent / 100;
                m.memory_mb = machine.memory_mb * percent / 100;
                amount = std::to_string(percent) + "%";
            } else if (rng.chance(0.5)) {
                m.cpu_milli = rng.between(10, 8'000);
                char number[32];
                snprintf(number, sizeof number, "%ld.%03ld cpus", m.cpu_milli / 1'000,
                         m.cpu_milli % 1'000);
                amount = number;
            } else {
                m.memory_mb = rng.between(1, 16'000);
                amount = std::to_string(m.memory_mb) + "M memory";
            }
            text += (text.empty() ? "" : "; ") + when + " = " + amount;
            meant.push_back(m);
        }
        const OwnerShare share = share_of(text);
        const MachineSize offered{rng.between(1, 8) * 1'000, rng.between(1, 16'000)};
        for (int i = 0; i < 50; ++i) {
            const auto second = static_cast<int32_t>(rng.below(week_s));
            const bool here = rng.chance(0.5);
            MachineSize least = offered;
            for (const Meant& m : meant) {
                const int32_t of_day = second % (24 * hour);
                if (m.here ? !here : of_day < m.from || of_day >= m.to) continue;
                if (m.cpu_milli >= 0) least.cpu_milli = std::min(least.cpu_milli, m.cpu_milli);
                if (m.memory_mb >= 0) least.memory_mb = std::min(least.memory_mb, m.memory_mb);
            }
            const MachineSize got = share.of(machine, offered, second, here);
            ck_assert_msg(got == least, "%s", text.c_str());
            // The share changes at no moment before the next edge.
            const int32_t edge = share.to_next_edge(second);
            const auto later = static_cast<int32_t>(
                (second + (edge > 0 ? rng.below(edge) : rng.below(week_s))) % week_s);
            ck_assert(share.of(machine, offered, later, here) == got);
        }
    }
}
END_TEST

START_TEST(the_market_is_told_of_a_smaller_and_slower_node_while_the_owner_is_here) {
    Provider p = lender("here = 2.5 cpus, 25% memory");
    provider::Outputs out;
    ck_assert_int_eq(p.report().cpus, 8);
    p.set_here(true, out);
    ck_assert_uint_eq(out.size(), 1);
    const ProviderReport told = std::get<provider::Report>(out[0]).report;
    ck_assert_int_eq(told.cpus, 3);
    ck_assert_int_eq(told.speed, 90 * 2'500 / 3'000);  // three of them do what 2.5 did
    ck_assert_int_eq(told.memory_mb, 4'000);
    ck_assert(told.on_market && told.cannot.empty());
    out.clear();
    p.set_here(true, out);
    ck_assert(out.empty());
    p.set_here(false, out);
    ck_assert_uint_eq(out.size(), 1);
    ck_assert_int_eq(p.report().cpus, 8);
    ck_assert_int_eq(p.report().speed, 90);
    ck_assert_int_eq(p.report().memory_mb, 12'000);
    // Half a core is one that is half as fast, and never none.
    OK(p.set_share("here = 0.01 cpus", at(0), out));
    p.set_here(true, out);
    ck_assert_int_eq(p.report().cpus, 1);
    ck_assert_int_eq(p.report().speed, 1);
    // The share cannot be more than the node offers.
    Provider two = lender("here = 6 cpus", 2);
    two.set_here(true, out);
    ck_assert_int_eq(two.report().cpus, 2);
    ck_assert_int_eq(two.report().speed, 90);
}
END_TEST

START_TEST(a_share_by_the_clock_begins_and_ends_by_itself) {
    Provider p = lender("mon-fri 8:00-18:00 = 25%");
    provider::Outputs out;
    ck_assert_int_eq(p.next_call(at(7 * hour + 1'800)), 1'800);
    p.tick(at(7 * hour + 1'800), out);
    ck_assert(out.empty());
    p.tick(at(8 * hour), out);
    ck_assert_uint_eq(out.size(), 1);
    ck_assert_int_eq(std::get<provider::Report>(out[0]).report.cpus, 2);
    ck_assert_text(p.lent_by(), "mon-fri 8:00-18:00 = 25%");
    out.clear();
    p.tick(at(18 * hour), out);
    ck_assert_int_eq(std::get<provider::Report>(out.back()).report.cpus, 8);
    JsonWriter j;
    j.begin_object();
    p.explain(j);
    const std::string why = j.end_object().take();
    ck_assert_msg(why.find("\"lent_why\":\"all that is offered\"") != why.npos, "%s", why.c_str());
}
END_TEST

START_TEST(a_share_that_pvdctl_set_holds_over_the_configuration_until_it_is_unset) {
    Provider p = lender("here = 50%");
    provider::Outputs out;
    OK(p.set_share("here = 1 cpus", at(0), out));
    ck_assert_uint_eq(p.overrides().size(), 1);
    ck_assert_text(p.overrides()[0].name, "share");
    const ProviderRecord before = p.record();
    out.clear();
    ck_assert(!p.set_share("here = 200%", at(0), out) && !p.set_share("here = 9 cpus", at(0), out));
    ck_assert(p.record() == before && out.empty());
    ck_assert_text(p.share().text(), "here = 1 cpus");
    // The record on disk says the same, and so does a daemon that reads it.
    const auto kept = wire::unpack<ProviderRecord>(wire::pack(p.record()));
    ck_assert(kept && *kept == before);
    ProviderRecord file;
    file.share = "here = 75%";
    auto again = Provider::create("n1", Hardware{8, 16'000, {}}, file, *kept);
    ck_assert(again && again->share().text() == "here = 1 cpus");
    OK(again->unset("share", at(0), out));
    ck_assert_text(again->share().text(), "here = 75%");
    OK(again->set_share("all", at(0), out));
    ck_assert(again->share().empty() && again->overrides().size() == 1);
    ck_assert_text(again->overrides()[0].value, "all");
}
END_TEST

UNIT_SUITE(owner_share, a_share_is_a_part_or_a_number_of_cpus_and_memory,
           what_is_no_share_is_refused_with_the_rule_and_the_reason,
           the_least_of_all_rules_that_hold_holds_and_nothing_more_at_every_moment,
           the_market_is_told_of_a_smaller_and_slower_node_while_the_owner_is_here,
           a_share_by_the_clock_begins_and_ends_by_itself,
           a_share_that_pvdctl_set_holds_over_the_configuration_until_it_is_unset);

}  // namespace souk::unit
