// SPDX-License-Identifier: GPL-2.0-or-later
// SiteNet: several markets that are peers, on virtual time, each with its homes and with the rounds
// by which it moves its jobs to the others and back (market/core/site_moves.hpp, offer_rounds.hpp).
// Words between two of them go one after the other, late, and are lost when their link breaks.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "market/core/offer_rounds.hpp"
#include "market/core/site_names.hpp"
#include "tests/unit/site_words.hpp"

namespace souk::market {

// The rule of docs/sites.md, in fractions: what is gained less what it must be more than.
inline double worth(const SiteMove& m, const SiteStay& there, const std::string& site) {
    const double rest = std::min(m.rest.seconds(), 3600.0);
    const double here_s = std::max(0.0, rest - there.starts_in.seconds());
    const double there_s =
        here_s * static_cast<double>(m.here.speed) / static_cast<double>(there.speed);
    const double cost_s = std::min(m.pause.seconds(), 3600.0) + 60;
    const bool twice = std::ranges::find(m.lately, site) != m.lately.end();
    if (!m.cheapest) return here_s - there_s - (twice ? 2 : 1) * cost_s;
    const auto money = [&](Money price, double span_s) {
        return static_cast<double>(price.micro) * m.cpus * span_s / 3600;
    };
    return money(m.here.price, here_s) - money(there.price, there_s) -
           (twice ? 2 : 1) * (money(m.bid, cost_s) + static_cast<double>(m.carried.micro));
}

struct SiteNet {
    struct Site {
        std::string name;
        World w;
        SiteTerms terms;  // of each of its peers here
        OfferRounds waiting{1}, running{2, OfferRounds::of_running};
        OfferTurns turns;
        std::map<JobId, Nanos> frozen_since;  // its jobs that lie elsewhere
    };
    struct Change {  // a job is at another site than before
        Nanos at;
        std::string to;  // empty: home
    };
    struct Gain {  // the markets have decided for one
        Nanos at;
        std::string to;
        SiteMove move;
        SiteOffer offer;
        bool ran = false;
    };
    using Words = std::deque<std::pair<Nanos, std::function<void()>>>;
    using Way = std::pair<std::string, std::string>;  // from, to

    std::map<std::string, Site> sites;
    std::map<Way, Words> ways;
    std::map<Way, bool> up;  // the first name is the lesser one
    std::function<Nanos()> delay = [] { return Nanos{}; };
    std::function<void(Site&, const JobId&, const Gain&)> decided;
    std::map<std::string, std::map<JobId, std::vector<Change>>> changes;
    Nanos now = Nanos::from_s(1);
    Quote::Place at_home;  // of the job that is looked at

    explicit SiteNet(const std::vector<std::string>& names) {
        for (const std::string& name : names) {
            Site& site = sites[name];
            site.name = name;
            site.terms.most_cpus = 8;
            site.w.calendar = Nanos::from_s(1'000'000'000);
            site.w.market->set_calendar(site.w.calendar);
            site.w.elsewhere = [this, &site](const Send& send) { return said(site, send); };
            site.w.after_step = [this, &site] { carry(site); };
        }
        for (const std::string& a : names)
            for (const std::string& b : names)
                if (a < b) set_link(a, b, true);
    }
    Site& at(const std::string& name) { return sites.at(name); }
    static Way link(const std::string& a, const std::string& b) {
        return a < b ? Way(a, b) : Way(b, a);
    }
    bool is_up(const std::string& a, const std::string& b) const {
        const auto it = up.find(link(a, b));
        return it != up.end() && it->second;
    }
    uint32_t account(const std::string& site) const {
        return site_account(1 +
                            static_cast<uint32_t>(std::distance(sites.begin(), sites.find(site))));
    }
    // A home that is sent to another site's node makes that a provider of the World.
    static std::vector<NodeName> own_nodes(const Site& site) {
        std::vector<NodeName> names;
        for (const auto& [name, p] : site.w.providers)
            if (of_site(name).site.empty()) names.push_back(name);
        return names;
    }
    void say(const std::string& from, const std::string& to, std::function<void()> word) {
        if (!is_up(from, to)) return;
        Words& words = ways[{from, to}];
        const Nanos before = words.empty() ? now : words.back().first;
        words.emplace_back(std::max(before, now + delay()), std::move(word));
    }
    bool said(Site& from, const Send& send) {
        const std::string to(of_site(send.node).site);
        if (to.empty()) return false;
        if (const auto* order = std::get_if<Order>(&send.message)) {
            if (order->id.home != send.node) return true;
            say(from.name, to, [this, &from, to, o = *order, n = send.number] {
                take_order(from.name, at(to), o, n);
            });
        }
        if (const auto* note = std::get_if<JobNote>(&send.message))
            say(from.name, to, [this, &from, to, w = SiteNote{*note, {}, send.number}] {
                take_note(from.name, at(to), w);
            });
        return true;
    }
    void carry(Site& from) {
        for (auto& word : from.w.market->lent().take_words())
            say(from.name, word.site,
                [this, &from, w = word] { take_job(from.name, at(w.site), w.word); });
        for (auto& failure : from.w.market->lent().take_failures())
            say(from.name, failure.site,
                [this, &from, f = failure] { take_failure(from.name, at(f.site), f.failed); });
    }
    void take_order(const std::string& from, Site& home, Order o, uint64_t number) {
        ck_assert(SiteBorder({from, home.name}).hear(o).has_value());
        const auto f = not_passed(home.w, from, o, number);
        if (!f) return;
        say(home.name, from, [this, &home, from, f] { take_failure(home.name, at(from), *f); });
    }
    void take_note(const std::string& from, Site& home, SiteNote note) {
        ck_assert(SiteBorder({from, home.name}).hear(note.note.id.home).has_value());
        home.w.market->site_note(from, note, home.w.now);
    }
    void take_failure(const std::string& from, Site& there, OrderFailed f) {
        ck_assert(SiteBorder({from, there.name}).hear(f).has_value());
        const Node* const home = there.w.market->find_node(f.id.home);
        if (there.w.market->find(f.id) && home->connected)
            must(there.w.market->site_failed(from, f, there.w.now));
    }
    void take_job(const std::string& from, Site& there, SiteJob word) {
        ck_assert(SiteBorder({from, there.name}).hear(word).has_value());
        const SiteGuests::Site site{from, account(from), &there.terms, 12 * 60};
        const auto no = refused(there.w, site, word);
        if (!no) return;
        say(there.name, from, [this, &there, from, no] { take_note(there.name, at(from), *no); });
    }
    void set_link(const std::string& a, const std::string& b, bool on) {
        if (is_up(a, b) == on) return;
        up[link(a, b)] = on;
        ways.erase({a, b});
        ways.erase({b, a});
        for (const auto& [one, other] : {Way(a, b), Way(b, a)}) {
            Market& market = *at(one).w.market;
            if (on)
                market.site_up(other, now), at(one).waiting.hurry(now);
            else
                market.site_down(other, now);
        }
    }
    void restart(const std::string& name) {
        Site& site = at(name);
        for (const auto& [other, s] : sites)
            if (other != name) set_link(name, other, false);
        site.w.restart();
        for (const NodeName& node : own_nodes(site)) site.w.connect(node);
    }

    // -- what OfferDesk does

    std::vector<std::string> may_ask(Site& x, const Job& job) {
        std::vector<std::string> names;
        for (const auto& [name, site] : sites)
            if (name != x.name && is_up(x.name, name) &&
                is_wished(*job.record.report.terms.sites, name) &&
                x.w.market->lent().may_go(job, name, now))
                names.push_back(name);
        return names;
    }
    void ask(Site& x, OfferRounds& rounds, const Job& job) {
        const std::vector<std::string> names = may_ask(x, job);
        if (names.empty()) {
            std::vector<std::string> connected;
            for (const auto& [name, site] : sites)
                if (name != x.name && is_up(x.name, name)) connected.push_back(name);
            if (const Reason rests = x.w.market->site_rests(job, connected, now); !rests.empty())
                x.w.market->say_of_sites(job.id(), rests);
            return rounds.later(job.id(), now);
        }
        SiteAsk question{rounds.begin(job.id(), names, x.w.market->site_wish(job, now), now),
                         job.id(), job.record.report.user, told_to_sites(job.record.report.terms),
                         &rounds == &x.waiting ? Nanos::from_s(15) : Nanos{}};
        for (const std::string& name : names)
            say(x.name, name, [this, &x, name, question] {
                Site& there = at(name);
                const SiteOffer offer = there.w.market->offer(
                    {x.name, account(x.name), &there.terms, 12 * 60}, question, there.w.now);
                say(name, x.name, [this, &x, name, offer] {
                    (void)(x.waiting.answer(name, offer, now) ||
                           x.running.answer(name, offer, now));
                });
            });
    }
    void give(Site& x, OfferRounds& rounds, const Job& job, const OfferRounds::Answer& best) {
        const bool waits = &rounds == &x.waiting;
        if (waits && !SiteMoves::waits(job)) return;
        const Gain gain{now, best.site, x.w.market->site_wish(job, now).move.value_or(SiteMove{}),
                        *best.offer, job.phase() == JobPhase::running};
        const JobId& id = job.id();
        Market& market = *x.w.market;
        const Status goes = best.site.empty() ? market.move_home(id, at_home, now)
                            : waits && job.phase() == JobPhase::waiting
                                ? market.lend(id, best.site, now)
                                : market.move_for_gain(id, best.site, *best.offer, now);
        if (!goes) return;
        x.running.begin_anew(id, now);
        if (decided) decided(x, id, gain);
    }
    void end_rounds(Site& x, OfferRounds& rounds) {
        rounds.tick(now);
        for (const JobId& id : rounds.take_ended()) {
            const Job* const job = x.w.market->find(id);
            const OfferRounds::Round* const round = rounds.of(id);
            if (!job || !round || round->is_open) continue;
            if (is_component(*job))
                combine(x, *job, *round);
            else if (round->chosen)
                give(x, rounds, *job, round->answers[*round->chosen]);
            else if (round->wish.move)
                x.w.market->say_of_sites(id, SiteMoves::no_gain(*round));
        }
    }
    void desk(Site& x) {
        for (const auto& [id, job] : x.w.market->jobs()) {
            const JobReport& r = job.record.report;
            if (is_component(job)) {
                note_gang(x, job);
                continue;
            }
            if (SiteMoves::could_wait(job))
                x.waiting.note(id, r.uid, r.terms, now);
            else if (job.record.loan->site.empty() || r.phase == JobPhase::finished)
                x.waiting.forget(id);
            if (SiteMoves::could_gain(job))
                x.running.note(id, r.uid, r.terms, now);
            else if (!is_on_its_way(job))
                x.running.forget(id);
        }
        for (const JobId& id : x.w.market->lent().take_back_home()) {
            const Job* const job = x.w.market->find(id);
            const Job* const leader =
                job && is_component(*job) ? x.w.market->gang_loans().leader_of(*job) : nullptr;
            x.waiting.begin_anew(leader ? leader->id() : id, now);
            x.running.begin_anew(id, now);
        }
        end_rounds(x, x.waiting);
        end_rounds(x, x.running);
        for (;;) {
            if (const auto runs =
                    x.turns.may_run(x.waiting, now) ? x.running.due(now) : std::optional<JobId>()) {
                x.turns.had(true);
                look_at_running(x, *runs);
            } else if (const auto waits = x.waiting.due(now)) {
                x.turns.had(false);
                look_at_waiting(x, *waits);
            } else {
                break;
            }
        }
    }
    // -- and with gangs

    void note_gang(Site& x, const Job& job) {
        const GangLoans& gangs = x.w.market->gang_loans();
        const Job* const leader = gangs.leader_of(job);
        if (leader != &job) x.waiting.forget(job.id());
        if (!leader) return;
        const JobReport& r = leader->record.report;
        if (gangs.seeks(*leader))
            x.waiting.note(leader->id(), r.uid, r.terms, now);
        else if (!gangs.has_gone(*leader))
            x.waiting.forget(leader->id());
    }
    void ask_about_gang(Site& x, const Job& leader) {
        const GangLoans& gangs = x.w.market->gang_loans();
        if (gangs.leader_of(leader) != &leader) return x.waiting.forget(leader.id());
        std::vector<std::string> names = may_ask(x, leader);
        for (const Job* const one : gangs.required_of(leader)) {
            std::erase_if(names, [&](const std::string& name) {
                return !x.w.market->lent().may_go(*one, name, now);
            });
            if (one->record.order) names.clear();
        }
        if (!gangs.seeks(leader) || !gangs.is_whole(leader) || names.empty())
            return x.waiting.later(leader.id(), now);
        SiteAsk ask{x.waiting.begin(leader.id(), names, x.w.market->site_wish(leader, now), now),
                    leader.id(),
                    leader.record.report.user,
                    told_to_sites(leader.record.report.terms),
                    {},
                    "",
                    gangs.parts_of(leader)};
        for (const SitePart& part : ask.parts) ask.terms.cpus = std::min(ask.terms.cpus, part.cpus);
        for (const std::string& name : names)
            say(x.name, name, [this, &x, name, ask] {
                Site& there = at(name);
                const SiteOffer offer = there.w.market->offer(
                    {x.name, account(x.name), &there.terms, 12 * 60}, ask, there.w.now);
                say(name, x.name,
                    [this, &x, name, offer] { (void)x.waiting.answer(name, offer, now); });
            });
    }
    std::function<void(Site&, const JobId&, const std::vector<GangLoans::Part>&)> gang_goes;
    void combine(Site& x, const Job& leader, const OfferRounds::Round& round) {
        GangLoans& gangs = x.w.market->gang_loans();
        const JobId& id = leader.id();
        if (!gangs.seeks(leader)) return;
        std::vector<GangLoans::Offer> offers;
        for (const auto& [name, offer] : round.answers)
            if (offer && offer->why.empty()) offers.push_back({name, offer->rooms});
        const auto own = x.w.market->rooms_at_home(leader, now);
        const auto parts =
            gangs.choose(leader, offers, own ? *own : std::vector<SiteRoom>{}, round.wish, 1);
        if (!parts || parts->empty()) return;
        if (x.w.market->lend_gang(id, *parts, now) && gang_goes) gang_goes(x, id, *parts);
    }
    void look_at_waiting(Site& x, const JobId& id) {
        const Job* const job = x.w.market->find(id);
        if (job && is_component(*job)) return ask_about_gang(x, *job);
        if (!job)
            x.waiting.forget(id);
        else if (!SiteMoves::waits(*job) || job->record.order)
            x.waiting.later(id, now);
        else
            ask(x, x.waiting, *job);
    }
    void look_at_running(Site& x, const JobId& id) {
        const Job* const job = x.w.market->find(id);
        if (!job) return x.running.forget(id);
        if (!SiteMoves::may_gain(*job) || !x.w.market->lent().may_move(*job))
            return x.running.later(id, now);
        if (!is_lent(*job)) return ask(x, x.running, *job);
        const auto place = x.w.market->place_at_home(*job, now);
        at_home = place.value_or(Quote::Place{});
        const uint64_t number = x.running.begin(id, {""}, x.w.market->site_wish(*job, now), now);
        (void)x.running.answer("", SiteMoves::offer_of(place, number), now);
        end_rounds(x, x.running);
    }

    // -- time

    void note_changes(Site& x) {
        for (const auto& [id, job] : x.w.jobs) {
            const JobReport& r = job.report;
            if (r.phase != JobPhase::running && r.phase != JobPhase::frozen) continue;
            const std::string site(of_site(r.where).site);
            std::vector<Change>& all = changes[x.name][id];
            if ((all.empty() ? std::string() : all.back().to) != site) all.push_back({now, site});
        }
    }
    void step(Nanos span = Nanos::from_s(1)) {
        for (auto& [way, words] : ways)
            while (!words.empty() && words.front().first <= now) {
                const auto word = std::move(words.front().second);
                words.pop_front();
                word();
            }
        now = now + span;
        for (auto& [name, site] : sites) {
            bring_home(site.w, site.frozen_since);
            site.w.run_until(now);
            note_changes(site);
            desk(site);
        }
    }
    void run(Nanos span) {
        for (const Nanos end = now + span; now < end;) step();
    }

    JobId submit(const std::string& site, int64_t price, Nanos work, const SiteWish& wish,
                 const char* home = "n1") {
        World& w = at(site).w;
        JobId id = w.submit(home, price, work);
        if (!wish.names.empty()) {
            w.jobs.at(id).report.terms.sites = wish;
            w.tell(w.jobs.at(id));
        }
        return id;
    }
    void set_owner(const std::string& site, const NodeName& node, bool on, int64_t reserve) {
        ProviderReport r = at(site).w.providers.at(node);
        r.on_market = on;
        r.reserve = Money::units(reserve);
        at(site).w.set_provider(r);
    }
    std::string where(const std::string& site, const JobId& id) { return at(site).w.where(id); }
};

inline const SiteWish any_site{"any"};

// lab's n1 is slow, uni's is fast.
struct Uneven : SiteNet {
    JobId job;
    explicit Uneven(const SiteWish& wish = any_site, Nanos work = Nanos::never())
        : SiteNet({"lab", "uni"}) {
        at("lab").w.add_node("n1", 50, 5);
        at("uni").w.add_node("n1", 200, 5, 2);
        run(Nanos::from_s(5));
        job = submit("lab", 20, work, wish);
        run(Nanos::from_s(20));
        ck_assert_text(where("lab", job), "n1");
    }
    std::string place() { return where("lab", job); }
    std::string why() {
        std::string all;
        for (const Reason& one : at("lab").w.market->reasons(*at("lab").w.market->find(job), now))
            all += one.text() + "\n";
        return all;
    }
    bool says(const char* text) { return why().find(text) != std::string::npos; }
    const Loan& loan() { return *at("lab").w.market->find(job)->record.loan; }
};

}  // namespace souk::market
