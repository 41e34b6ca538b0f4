// SPDX-License-Identifier: GPL-2.0-or-later
// Gangs over sites (market/core/gang_loans.hpp): two to four markets on virtual time, whose homes
// hold components as real ones do (gang_homes.hpp). Whatever a site does, and whenever, all
// components of a gang run or none does, and none is held or away for ever. SOUK_SITE_GANGS=N plays
// N random ones, SOUK_SITE_GANGS_FROM=S begins with seed S.
#include "kernel/base/rng.hpp"
#include "tests/unit/gang_homes.hpp"
#include "tests/unit/site_net.hpp"

using namespace souk;
using namespace souk::market;

namespace {

constexpr Nanos s(int64_t v) { return Nanos::from_s(v); }

struct GangNet : SiteNet {
    std::map<std::string, GangHomes> homes;
    std::map<std::string, std::vector<std::vector<JobId>>> gangs;
    size_t lent = 0;
    // Since when a gang runs in part, and a component is away without running.
    std::map<JobId, Nanos> in_part, away;
    Nanos longest_part, longest_away;

    explicit GangNet(const std::vector<std::string>& names) : SiteNet(names) {
        for (auto& [name, site] : sites) homes.emplace(name, site.w);
        gang_goes = [this](Site&, const JobId&, const std::vector<GangLoans::Part>& parts) {
            lent += parts.size();
        };
    }
    std::vector<JobId> submit_gang(const std::string& site, int64_t price, uint32_t of,
                                   Nanos work = Nanos::never(), int32_t cpus = 1,
                                   const SiteWish& wish = any_site) {
        auto ids = at(site).w.submit_gang("n1", price, of, cpus, work, UINT32_MAX,
                                          [&](JobReport& r) { r.terms.sites = wish; });
        gangs[site].push_back(ids);
        return ids;
    }
    JobPhase phase(const std::string& site, const JobId& id) { return at(site).w.phase(id); }
    size_t in_phase(const std::string& site, const std::vector<JobId>& ids, JobPhase p) {
        return static_cast<size_t>(
            std::ranges::count_if(ids, [&](const JobId& id) { return phase(site, id) == p; }));
    }
    bool all_run(const std::string& site, const std::vector<JobId>& ids) {
        return in_phase(site, ids, JobPhase::running) == ids.size();
    }
    size_t at_site(const std::string& site, const std::vector<JobId>& ids,
                   const std::string& there) {
        return static_cast<size_t>(std::ranges::count_if(ids, [&](const JobId& id) {
            const JobReport& r = at(site).w.jobs.at(id).report;
            return r.phase == JobPhase::running && of_site(r.where).site == there;
        }));
    }
    void go(Nanos span) {
        for (const Nanos end = now + span; now < end;) {
            step();
            for (auto& [name, home] : homes) home.tick();
            judge();
        }
    }
    // Lets time pass until that is so; false: it is not so in time.
    template <class Is>
    bool until(Is is, Nanos limit) {
        for (const Nanos end = now + limit; now < end; go(s(1)))
            if (is()) return true;
        return is();
    }
    void judge() {
        for (const auto& [name, all] : gangs)
            for (const std::vector<JobId>& ids : all) judge_gang(name, ids);
    }
    void judge_gang(const std::string& name, const std::vector<JobId>& ids) {
        Site& site = at(name);
        const size_t run = in_phase(name, ids, JobPhase::running) +
                           in_phase(name, ids, JobPhase::moving),
                     ended = in_phase(name, ids, JobPhase::finished);
        if (run > 0 && run + ended < ids.size())
            longest_part =
                std::max(longest_part, now - in_part.try_emplace(ids[0], now).first->second);
        else
            in_part.erase(ids[0]);
        for (const JobId& id : ids) {
            const Job* const job = site.w.market->find(id);
            const JobPhase p = phase(name, id);
            if (job && is_away(*job) && p != JobPhase::running && p != JobPhase::finished)
                longest_away =
                    std::max(longest_away, now - away.try_emplace(id, now).first->second);
            else
                away.erase(id);
        }
    }
    void is_sound(const char* what) {
        ck_assert_msg(longest_part <= s(10), "%s: in part for %f s", what, longest_part.seconds());
        ck_assert_msg(longest_away <= s(240), "%s: away for %f s", what, longest_away.seconds());
    }
    // Nobody holds anything of it, at no site.
    bool is_gone(const std::string& name, const std::vector<JobId>& ids) {
        for (auto& [other, site] : sites)
            for (const JobId& id : ids) {
                const JobId there = other == name ? id : JobId{name + ":" + id.home, id.seq};
                const Job* const job = site.w.market->find(there);
                if (job && (job->phase() != JobPhase::finished || !job->record.loan->site.empty()))
                    return false;
            }
        return true;
    }
    std::string story(const std::string& name, const std::vector<JobId>& ids) {
        std::string text;
        for (const JobId& id : ids) {
            const Job* const job = at(name).w.market->find(id);
            text += id.text() + " " + at(name).w.where(id);
            if (job)
                text += " (" + job->record.loan->site + (is_away(*job) ? ", away" : "") + ") " +
                        at(name).w.market->comment(*job);
            text += "\n";
        }
        return text;
    }
};

// lab has one CPU, uni two, far one; each lets the others' jobs come.
struct Three : GangNet {
    std::vector<JobId> ids;
    explicit Three(uint32_t of = 3, Nanos work = Nanos::never(), int64_t uni_cpus = 2)
        : GangNet({"far", "lab", "uni"}) {
        at("lab").w.add_node("n1", 100, 1);
        at("uni").w.add_node("n1", 100, 1, static_cast<int32_t>(uni_cpus));
        at("far").w.add_node("n1", 100, 1);
        go(s(5));
        ids = submit_gang("lab", 20, of, work);
    }
    bool runs() { return all_run("lab", ids); }
};

}  // namespace

START_TEST(a_gang_that_fits_at_no_site_alone_runs_over_several_and_ends) {
    Three t(4, s(100));
    ck_assert_msg(t.until([&] { return t.runs(); }, s(30)), "%s", t.story("lab", t.ids).c_str());
    ck_assert(t.at_site("lab", t.ids, "") == 1 && t.at_site("lab", t.ids, "uni") == 2 &&
              t.at_site("lab", t.ids, "far") == 1);
    ck_assert(t.homes.at("lab").releases == 1 && t.homes.at("lab").taken_back == 0);
    ck_assert(t.until([&] { return t.is_gone("lab", t.ids); }, s(200)));
    t.is_sound("four over three sites");
}
END_TEST

START_TEST(a_gang_that_fits_at_home_or_whose_user_says_so_stays) {
    Three t(1);
    ck_assert(t.until([&] { return t.runs(); }, s(10)));
    const auto own = t.submit_gang("lab", 20, 2, Nanos::never(), 1, {});
    t.go(s(120));
    ck_assert(t.lent == 0 && t.in_phase("lab", own, JobPhase::waiting) == 2);
    // Its components wait as a whole: too many for all sites together.
    const auto large = t.submit_gang("lab", 30, 5);
    t.go(s(300));
    ck_assert(t.lent == 0 && t.in_phase("lab", large, JobPhase::waiting) == 5 && t.runs());
    t.is_sound("at home");
}
END_TEST

START_TEST(a_component_that_is_displaced_freezes_all_and_they_go_on_together) {
    Three t(3);
    ck_assert(t.until([&] { return t.runs(); }, s(30)));
    ck_assert(t.at_site("lab", t.ids, "uni") > 0);
    t.set_owner("uni", "n1", false, 1);
    ck_assert(t.until([&] { return t.in_phase("lab", t.ids, JobPhase::frozen) == 3; }, s(30)));
    ck_assert(t.until(
        [&] {
            return std::ranges::all_of(t.ids, [&](const JobId& id) {
                return of_site(t.at("lab").w.jobs.at(id).report.where).site.empty();
            });
        },
        s(60)));
    t.go(s(100));
    ck_assert(t.in_phase("lab", t.ids, JobPhase::running) == 0);
    t.set_owner("uni", "n1", true, 1);
    ck_assert_msg(t.until([&] { return t.runs(); }, s(4'000)), "%s", t.story("lab", t.ids).c_str());
    // And when its place at home is another's.
    const JobId better = t.submit("lab", 50, s(100), {});
    ck_assert(t.until([&] { return t.in_phase("lab", t.ids, JobPhase::frozen) == 3; }, s(30)));
    ck_assert(t.until([&] { return t.where("lab", better) == "finished" && t.runs(); }, s(8'000)));
    t.is_sound("displaced");
}
END_TEST

START_TEST(a_cancel_in_any_step_ends_all_everywhere) {
    for (int64_t at_s = 0; at_s < 20; ++at_s) {
        Three t(4);
        for (auto& [name, site] : t.sites) site.w.transit = s(3);
        t.go(s(at_s));
        ck_assert(t.at("lab").w.market->cancel(t.ids[at_s % 4], 0).has_value());
        ck_assert_msg(t.until([&] { return t.is_gone("lab", t.ids); }, s(200)), "after %d s: %s",
                      static_cast<int>(at_s), t.story("lab", t.ids).c_str());
        t.is_sound("cancelled");
    }
}
END_TEST

START_TEST(a_market_that_dies_or_a_link_that_breaks_in_any_step_holds_nobody_for_ever) {
    for (const char* const who : {"lab", "uni", "far", "link", "link for ever"})
        for (int64_t at_s = 0; at_s < 16; ++at_s) {
            Three t(4);
            for (auto& [name, site] : t.sites) site.w.transit = s(2);
            t.go(s(at_s));
            const std::string victim = who;
            const bool is_link = victim.starts_with("link");
            is_link ? t.set_link("lab", "uni", false) : t.restart(victim);
            // Before it runs a gang comes to rest without the site; one that runs goes on.
            const bool ran = t.runs();
            t.go(s(300));
            if (is_link) {
                const size_t run = t.in_phase("lab", t.ids, JobPhase::running);
                const size_t wait = t.in_phase("lab", t.ids, JobPhase::waiting);
                ck_assert_msg(run == 4 || (!ran && wait == 4), "%s after %d s: %s", who,
                              static_cast<int>(at_s), t.story("lab", t.ids).c_str());
                if (victim == "link for ever") {
                    t.is_sound(who);
                    continue;
                }
            }
            for (const auto& [a, b] : {SiteNet::Way("lab", "uni"), {"far", "lab"}, {"far", "uni"}})
                t.set_link(a, b, true);
            ck_assert_msg(t.until([&] { return t.runs(); }, s(4'000)), "%s after %d s: %s", who,
                          static_cast<int>(at_s), t.story("lab", t.ids).c_str());
            t.is_sound(who);
        }
}
END_TEST

START_TEST(a_site_that_offers_and_does_not_keep_costs_a_gang_a_bounded_time) {
    // uni's node refuses each start; when that is over the gang goes there.
    Three t(3);
    bool refuses = true;
    t.at("lab").w.refuse = [&](const Order& o) -> std::optional<OrderFailed> {
        if (!refuses || of_site(o.node).site != "uni") return std::nullopt;
        return OrderFailed{o.id, o.seq, o.node, "no"};
    };
    t.go(s(1'200));
    ck_assert(t.lent > 0 && t.in_phase("lab", t.ids, JobPhase::running) == 0);
    // It is not asked all the time: pauses grow.
    ck_assert_msg(t.lent <= 3 * 12, "%zu loans", t.lent);
    refuses = false;
    ck_assert_msg(t.until([&] { return t.runs(); }, s(8'000)), "%s", t.story("lab", t.ids).c_str());
    t.is_sound("refused");
}
END_TEST

START_TEST(unlike_components_go_where_they_fit_together) {
    GangNet t({"lab", "uni"});
    t.at("lab").w.add_node("n1", 100, 1, 9);
    t.at("uni").w.add_node("n1", 100, 1, 10);
    t.at("uni").terms.most_cpus = 10;
    t.go(s(5));
    const std::vector<int32_t> sizes = {5, 5, 3, 3, 3};
    size_t n = 0;
    const auto ids =
        t.at("lab").w.submit_gang("n1", 20, 5, 1, Nanos::never(), UINT32_MAX, [&](JobReport& r) {
            r.terms.sites = any_site;
            r.terms.cpus = sizes[n++];
        });
    t.gangs["lab"].push_back(ids);
    ck_assert_msg(t.until([&] { return t.all_run("lab", ids); }, s(60)), "%s",
                  t.story("lab", ids).c_str());
    ck_assert(t.at_site("lab", ids, "uni") == 2);
    t.is_sound("unlike");
}
END_TEST

// Random markets, jobs, faults and restarts; then all is well for hours, and what fits runs.
namespace {

struct Fair : GangNet {
    Rng rng;
    std::vector<std::string> names;
    std::map<std::string, std::vector<JobId>> singles;
    bool calm = false;

    static std::vector<std::string> names_of(uint64_t seed) {
        return seed % 2 ? std::vector<std::string>{"a", "b"}
                        : std::vector<std::string>{"a", "b", "c"};
    }
    explicit Fair(uint64_t seed) : GangNet(names_of(seed)), rng(seed), names(names_of(seed)) {
        delay = [this] { return Nanos::from_ms(rng.between(0, calm ? 500 : 4'000)); };
        for (auto& [name, site] : sites) {
            site.terms.most_cpus = static_cast<int32_t>(rng.between(1, 6));
            site.w.transit = Nanos::from_ms(rng.between(0, 4'000));
            site.w.refuse = [this](const Order& o) -> std::optional<OrderFailed> {
                const bool runs = o.kind == Order::Kind::run;
                if (calm || !runs || !rng.chance(0.08)) return std::nullopt;
                return OrderFailed{o.id, o.seq, o.node, "no"};
            };
            for (int64_t n = 1, most = rng.between(1, 2); n <= most; ++n)
                site.w.add_node("n" + std::to_string(n), rng.between(1, 4) * 50, rng.between(0, 10),
                                static_cast<int32_t>(rng.between(1, 3)));
        }
        go(s(5));
    }
    std::string any() { return names[rng.below(names.size())]; }
    void submits(const std::string& x) {
        if (gangs[x].size() < 3) {
            const auto ids = at(x).w.submit_gang(
                "n1", rng.between(5, 60), static_cast<uint32_t>(rng.between(2, 5)), 1,
                rng.chance(0.5) ? s(rng.between(30, 2'000)) : Nanos::never(), UINT32_MAX,
                [&](JobReport& r) {
                    r.terms.sites = SiteWish{rng.chance(0.9) ? "any" : any(), rng.chance(0.4)};
                    r.terms.cpus = static_cast<int32_t>(rng.between(1, 2));
                });
            gangs[x].push_back(ids);
        }
        if (singles[x].size() < 3 && rng.chance(0.5))
            singles[x].push_back(submit(x, rng.between(5, 60), s(rng.between(30, 2'000)),
                                        rng.chance(0.7) ? any_site : SiteWish{}));
    }
    void event() {
        const std::string x = any(), y = any();
        switch (rng.below(10)) {
            case 0:
            case 1: submits(x); break;
            case 2:
            case 3: {
                const std::vector<NodeName> nodes = own_nodes(at(x));
                ProviderReport r = at(x).w.providers.at(nodes[rng.below(nodes.size())]);
                if (rng.chance(0.4)) r.on_market = !r.on_market;
                if (rng.chance(0.5)) r.reserve = Money::units(rng.between(0, 20));
                at(x).w.set_provider(r);
                break;
            }
            case 4:
            case 5:
                if (x != y) set_link(x, y, !is_up(x, y));
                break;
            case 6:
                if (rng.chance(0.3)) restart(x);
                break;
            case 7: {
                if (gangs[x].empty() || !rng.chance(0.2)) break;
                const auto& ids = gangs[x][rng.below(gangs[x].size())];
                const JobId& id = ids[rng.below(ids.size())];
                if (at(x).w.market->find(id)) (void)at(x).w.market->cancel(id, 0);
                break;
            }
            default:
                for (const std::string& one : names)
                    for (const std::string& other : names)
                        if (one < other) set_link(one, other, true);
        }
    }
    void heal() {
        calm = true;
        for (const std::string& one : names)
            for (const std::string& other : names)
                if (one < other) set_link(one, other, true);
        for (auto& [name, site] : sites) {
            site.terms.most_cpus = 64;
            for (const NodeName& node : own_nodes(site)) {
                ProviderReport r = site.w.providers.at(node);
                r.on_market = true;
                r.reserve = {};
                r.cpus = 200;
                r.memory_mb = r.free_mb = 100'000;
                site.w.set_provider(r);
            }
        }
    }
};

struct Sum {
    size_t lent = 0, releases = 0, taken_back = 0, frozen = 0;
};

void play(uint64_t seed, Sum& sum) {
    Fair f(seed);
    const std::string which = "seed " + std::to_string(seed);
    for (const Nanos end = f.now + s(1'800); f.now < end; f.go(s(f.rng.between(1, 40)))) f.event();
    f.is_sound(which.c_str());
    sum.lent += f.lent;
    for (auto& [name, home] : f.homes) {
        sum.releases += home.releases;
        sum.taken_back += home.taken_back;
        sum.frozen += home.frozen;
    }
    // There is room for all at each site.
    f.heal();
    const auto all_go = [&] {
        return std::ranges::all_of(f.gangs, [&](const auto& of) {
            return std::ranges::all_of(of.second, [&](const auto& ids) {
                return f.in_phase(of.first, ids, JobPhase::running) +
                           f.in_phase(of.first, ids, JobPhase::finished) ==
                       ids.size();
            });
        });
    };
    if (!f.until(all_go, s(1'800)))
        for (const auto& [name, of] : f.gangs)
            for (const auto& ids : of)
                ck_assert_msg(f.in_phase(name, ids, JobPhase::running) +
                                      f.in_phase(name, ids, JobPhase::finished) ==
                                  ids.size(),
                              "%s, %s: %s", which.c_str(), name.c_str(),
                              f.story(name, ids).c_str());
    f.is_sound(which.c_str());
    for (const auto& [name, of] : f.gangs)
        for (const auto& ids : of)
            if (f.at(name).w.market->find(ids[0])) (void)f.at(name).w.market->cancel(ids[0], 0);
    for (const auto& of : f.gangs)
        for (const auto& ids : of.second) {
            const std::string& name = of.first;
            ck_assert_msg(f.until([&] { return f.is_gone(name, ids); }, s(300)), "%s, %s: %s",
                          which.c_str(), name.c_str(), f.story(name, ids).c_str());
        }
}

}  // namespace

START_TEST(all_components_run_or_none_and_nobody_is_held_for_ever) {
    const char* const wished = getenv("SOUK_SITE_GANGS");
    const uint64_t seeds = wished ? std::stoull(wished) : 60;
    const char* const from = getenv("SOUK_SITE_GANGS_FROM");
    const uint64_t first = from ? std::stoull(from) : 1;
    Sum sum;
    for (uint64_t seed = first; seed < first + seeds; ++seed) {
        if (wished) fprintf(stderr, "seed %d\n", static_cast<int>(seed));
        play(seed, sum);
    }
    if (wished)
        fprintf(stderr, "%zu loans, %zu releases, %zu starts taken back, %zu frozen with others\n",
                sum.lent, sum.releases, sum.taken_back, sum.frozen);
    // The judge has had something to judge.
    if (seeds < 60) return;
    ck_assert_msg(sum.lent > 100 && sum.releases > 60 && sum.taken_back > 60 && sum.frozen > 60,
                  "%zu, %zu, %zu, %zu", sum.lent, sum.releases, sum.taken_back, sum.frozen);
}
END_TEST

UNIT_SUITE_LONG(site_gangs, 240, all_components_run_or_none_and_nobody_is_held_for_ever,
                a_gang_that_fits_at_no_site_alone_runs_over_several_and_ends,
                a_gang_that_fits_at_home_or_whose_user_says_so_stays,
                a_component_that_is_displaced_freezes_all_and_they_go_on_together,
                a_cancel_in_any_step_ends_all_everywhere,
                a_market_that_dies_or_a_link_that_breaks_in_any_step_holds_nobody_for_ever,
                a_site_that_offers_and_does_not_keep_costs_a_gang_a_bounded_time,
                unlike_components_go_where_they_fit_together);
