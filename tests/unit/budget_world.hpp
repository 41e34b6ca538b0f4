// SPDX-License-Identifier: GPL-2.0-or-later
// Street: the real Market and real Homes, one a node, on virtual time; the nodes' guests are as
// small as a home can tell. A home hears of orders, costs and prices by its market, of freezes and
// ends by its guests, each a while later; links break, the market dies and comes back from its
// records, or is silent for a while with its links up. It keeps the true run time of every job and
// what each home was told, so that a test may reckon what a budget allows on its own.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "agentd/core/home.hpp"
#include "kernel/base/rng.hpp"
#include "market/core/market.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {

using namespace souk::market;

struct Street {
    struct CopyKey {
        NodeName node;
        JobId id;
        uint64_t epoch = 0;
        auto operator<=>(const CopyKey&) const = default;
    };
    struct Copy {
        GuestState state = GuestState::unknown;
        Nanos since = Nanos::never();  // it runs
        uint64_t turn = 0;             // what was begun in an older one is void
    };
    // The true state of a job, beside what its home and the market were told of it.
    struct Facts {
        Nanos ran;                    // in all, true; and when it was last told
        Nanos work = Nanos::never();  // ends after so much
        Money told_cost, told_price;
        Nanos told_at_run;
        Nanos ran_before, changed;  // under another budget than now; since when it is this one
        // that it may have cost: the largest budget since it cost that, or what it had cost
        Money most;
        std::set<std::string> warned;  // the budgets of whose ends its user was warned
        bool excused = false;          // its home could not know that the end was near
        int used_up = 0;               // how often it was said
    };
    struct Agent {
        std::unique_ptr<Home> home;
        std::map<JobId, HomeJob> stored;
        ProviderReport offer;
        bool up = false;
        uint64_t link = 0;  // its number
        Nanos tick;
    };

    Rng rng;
    Nanos now = Nanos::from_s(1);
    Nanos delay;
    std::multimap<Nanos, std::function<void()>> events;
    std::map<NodeName, Agent> agents;
    std::map<CopyKey, Copy> copies;
    std::map<JobId, Facts> facts;
    std::unique_ptr<Market> market;
    Nanos silent_until{0};
    double refusal = 0;
    // The records that the market has stored.
    std::map<JobId, JobRecord> jobs;
    std::map<NodeName, NodeRecord> nodes;
    std::map<Holder, AccountRecord> accounts;
    MetaRecord meta;
    std::map<JobId, Money> paid;
    std::function<void()> after_step;

    explicit Street(uint64_t seed) : rng(seed), delay(Nanos::from_ms(rng.between(1, 300))) {
        start_market();
    }

    void start_market() {
        market = std::make_unique<Market>(MarketOptions{});
        market->load(meta);
        for (const auto& [id, r] : jobs) market->load(r);
        for (const auto& [name, r] : nodes) market->load(r);
        for (const auto& [holder, r] : accounts) market->load(r);
        market->started(now);
        silent_until = {};
        for (auto& [name, agent] : agents) lose(name);
        excuse_all();
    }
    void excuse_all() {
        for (auto& [id, f] : facts) f.excused = true;
    }

    // ---- links

    void after(Nanos span, std::function<void()> what) {
        events.emplace(now + span, std::move(what));
    }
    void add_node(const NodeName& name, int64_t speed, int64_t reserve, int32_t cpus) {
        Agent& a = agents[name];
        a.home = std::make_unique<Home>(name, Home::Limits{});
        a.offer.node = name;
        a.offer.on_market = true;
        a.offer.reserve = Money::units(reserve);
        a.offer.speed = speed;
        a.offer.cpus = cpus;
        a.offer.memory_mb = a.offer.free_mb = 64'000;
        connect(name);
    }
    void connect(const NodeName& name) {
        Agent& a = agents.at(name);
        if (a.up || now < silent_until) return;  // who is silent takes no connection
        a.up = true;
        ++a.link;
        ck_assert(market->agent_connected(name, name + ":1", now).has_value());
        say_offer(name);
        home_step(name, [&](Home& h, home::Outputs& out) { h.market_up(now, out); });
    }
    void lose(const NodeName& name) {
        Agent& a = agents.at(name);
        if (!a.up) return;
        a.up = false;
        ++a.link;
        market->agent_lost(name, now);
        a.home->market_down();
        a.tick = now;
        for (auto& [id, f] : facts)
            if (id.home == name) f.excused = true;
    }
    void say_offer(const NodeName& name) {
        const Agent& a = agents.at(name);
        if (a.up) to_market(name, ToMarket{a.offer});
    }
    void to_market(const NodeName& name, ToMarket message) {
        const uint64_t link = agents.at(name).link;
        after(delay, [this, name, link, message = std::move(message)] {
            market_hears(name, link, message);
        });
    }
    void market_hears(const NodeName& name, uint64_t link, const ToMarket& message) {
        if (agents.at(name).link != link) return;
        if (now < silent_until) {
            events.emplace(silent_until,
                           [this, name, link, message] { market_hears(name, link, message); });
            return;
        }
        if (const auto* job = std::get_if<JobReport>(&message); job && !market->find(job->id))
            if (const auto known = jobs.find(job->id); known != jobs.end())
                market->recall(known->second);
        ck_assert(market->report(name, message, now).has_value());
    }

    // ---- homes

    void home_step(const NodeName& name, const std::function<void(Home&, home::Outputs&)>& step) {
        Agent& a = agents.at(name);
        home::Outputs out;
        step(*a.home, out);
        a.tick = a.home->tick(now, out);
        for (const auto& o : out) {
            if (const auto* p = std::get_if<home::Persist>(&o)) a.stored[p->job.id] = p->job;
            if (const auto* e = std::get_if<home::Erase>(&o)) a.stored.erase(e->id);
            if (const auto* m = std::get_if<home::ToMarketMsg>(&o); m && a.up)
                to_market(name, m->message);
            if (const auto* g = std::get_if<home::ToGuest>(&o))
                after(delay,
                      [this, node = g->peer.node, command = g->command] { guest(node, command); });
            if (const auto* t = std::get_if<home::Tell>(&o)) tell(*t);
        }
    }
    void tell(const home::Tell& t) {
        Facts& f = facts.at(t.id);
        const std::string budget = t.text.substr(0, t.text.find(" is used up"));
        if (t.what == home::Tell::What::warning) f.warned.insert(budget);
        if (t.what != home::Tell::What::comment ||
            t.text.find("is used up; a larger one") == std::string::npos)
            return;
        if (ran(t.id) == f.ran_before) return;  // it was too little to be woken for
        ++f.used_up;
        ck_assert_msg(f.warned.contains(budget) || f.excused, "%s: %s; and nobody was warned",
                      t.id.text().c_str(), t.text.c_str());
    }
    void restart_home(const NodeName& name) {
        lose(name);
        Agent& a = agents.at(name);
        a.home = std::make_unique<Home>(name, Home::Limits{});
        for (const auto& [id, job] : a.stored) a.home->load(job);
        home_step(name, [&](Home& h, home::Outputs& out) {
            h.restarted(now, out);
            for (const NodeName& guest : h.guests_needed()) h.guest_up(guest, now, out);
        });
        for (auto& [id, f] : facts)
            // the figures that the home has on disk
            if (const HomeJob* job = id.home == name ? find(id) : nullptr)
                f.told_cost = job->cost, f.told_price = job->price, f.told_at_run = ran(id);
    }
    JobId submit(const NodeName& home, int64_t price, Money budget, Nanos work) {
        JobId id;
        home_step(home, [&](Home& h, home::Outputs& out) {
            Submission s;
            s.spec.launch.argv = {"/bin/job"};
            s.spec.launch.uid = 1000;
            s.terms.max_price = Money::units(price);
            s.terms.budget = budget;
            id = *h.submit(std::move(s), now, out);
            facts[id].work = work;
            facts[id].most = budget;
        });
        return id;
    }
    const HomeJob* find(const JobId& id) const { return agents.at(id.home).home->find(id); }
    void change_budget(const JobId& id, Money budget) {
        Facts& f = facts.at(id);
        const HomeJob* job = find(id);
        if (!job || job->phase == JobPhase::finished) return;
        JobTerms terms = job->terms;
        // The budget is lowered: the cost so far stays, and the end may come at once.
        if (budget.micro > 0 && (terms.budget.micro == 0 || budget < terms.budget))
            f.excused = true;
        terms.budget = budget;
        f.ran_before = ran(id);
        f.changed = now;
        f.most = budget.micro == 0 || f.most.micro == 0 ? Money{} : std::max(f.most, budget);
        home_step(id.home, [&](Home& h, home::Outputs& out) {
            ck_assert(h.change(id, terms, now, out).has_value());
        });
    }

    // ---- guests

    void event(const NodeName& node, const GuestCommand& c, GuestState state,
               const char* why = "") {
        GuestEvent e;
        e.id = c.id;
        e.epoch = c.epoch;
        e.state = state;
        e.why = why;
        after(delay, [this, node, e] {
            home_step(e.id.home,
                      [&](Home& h, home::Outputs& out) { h.guest_event(node, e, now, out); });
        });
    }
    void stand(Copy& copy, const JobId& id) {
        ++copy.turn;
        if (copy.since != Nanos::never()) facts.at(id).ran += now - copy.since;
        copy.since = Nanos::never();
    }
    void run(const NodeName& node, const GuestCommand& c, Copy& copy) {
        Facts& f = facts.at(c.id);
        copy.state = GuestState::running;
        copy.since = now;
        const uint64_t turn = ++copy.turn;
        event(node, c, GuestState::running);
        if (f.work == Nanos::never()) return;
        after(std::max(Nanos{0}, f.work - f.ran), [this, node, c, turn] {
            Copy& it = copies[{node, c.id, c.epoch.n}];
            if (it.turn != turn) return;
            stand(it, c.id);
            it.state = GuestState::exited;
            event(node, c, GuestState::exited);
        });
    }
    // Ships, freezes or fails to, a while later.
    void dump(const NodeName& node, const GuestCommand& c, Copy& copy) {
        const bool ran = copy.state == GuestState::running, ships = c.verb != GuestVerb::freeze;
        if (!ran && !(ships && copy.state == GuestState::frozen)) return event(node, c, copy.state);
        if (ran) {
            stand(copy, c.id);
            copy.state = GuestState::dumping;
            event(node, c, GuestState::dumping);
        }
        const uint64_t turn = ++copy.turn;
        after(Nanos::from_ms(rng.between(1, 3'000)), [this, node, c, turn, ran, ships] {
            Copy& it = copies[{node, c.id, c.epoch.n}];
            if (it.turn != turn) return;
            if (ran && rng.chance(refusal)) {
                run(node, c, it);
                return event(node, c, GuestState::running, "it cannot be dumped");
            }
            if (ran) it.state = ships ? GuestState::shipped : GuestState::frozen;
            if (ran) event(node, c, it.state);
            if (!ships) return;
            const NodeName dest = c.verb == GuestVerb::ship ? c.dest : node;
            Copy& there = copies[{dest, c.id, c.new_epoch.n}];
            if (there.state != GuestState::prepared) return;
            there.state = GuestState::held;
            GuestCommand other = c;
            other.epoch = c.new_epoch;
            event(dest, other, GuestState::held);
        });
    }
    void guest(const NodeName& node, const GuestCommand& c) {
        Copy& copy = copies[{node, c.id, c.epoch.n}];
        switch (c.verb) {
            case GuestVerb::query: return event(node, c, copy.state);
            case GuestVerb::start:
                return copy.state == GuestState::unknown ? run(node, c, copy)
                                                         : event(node, c, copy.state);
            case GuestVerb::prepare:
                if (copy.state == GuestState::unknown) copy.state = GuestState::prepared;
                return event(node, c, copy.state);
            case GuestVerb::prepare_dump:
                return event(
                    node, c,
                    copy.state == GuestState::running ? GuestState::dump_ready : copy.state);
            case GuestVerb::ship:
            case GuestVerb::restore_here:
            case GuestVerb::freeze: return dump(node, c, copy);
            case GuestVerb::commit:
                if (copy.state == GuestState::shipped) copy.state = GuestState::killed;
                return event(node, c, copy.state);
            case GuestVerb::release:
                return copy.state == GuestState::held ? run(node, c, copy)
                                                      : event(node, c, copy.state);
            case GuestVerb::resume:
                if (copy.state == GuestState::shipped || copy.state == GuestState::dumping)
                    return run(node, c, copy);
                return event(node, c, copy.state);
            case GuestVerb::kill:
                stand(copy, c.id);
                copy.state = GuestState::killed;
                return event(node, c, copy.state);
            case GuestVerb::drop:
                stand(copy, c.id);
                copies.erase({node, c.id, c.epoch.n});
                return event(node, c, GuestState::unknown);
            case GuestVerb::keep:  // no job here has checkpoints
            case GuestVerb::checkpoint:
            case GuestVerb::signal: return;
        }
    }
    // True, now.
    Nanos ran(const JobId& id) const {
        Nanos sum = facts.at(id).ran;
        for (const auto& [key, copy] : copies)
            if (key.id == id && copy.since != Nanos::never()) sum += now - copy.since;
        return sum;
    }

    // ---- the market's step

    void store(const StoreOp& op) {
        if (const auto* r = std::get_if<JobRecord>(&op)) jobs[r->report.id] = *r;
        if (const auto* r = std::get_if<NodeRecord>(&op)) nodes[r->node] = *r;
        if (const auto* r = std::get_if<AccountRecord>(&op)) accounts[r->holder] = *r;
        if (const auto* r = std::get_if<MetaRecord>(&op)) meta = *r;
        if (const auto* r = std::get_if<Receipt>(&op)) paid[r->job] += r->paid;
    }
    void market_step() {
        if (now < silent_until) return;
        Outputs out;
        market->solve(now, out);
        for (const StoreOp& op : out.store) store(op);
        for (const Send& send : out.send) {
            const uint64_t link = agents.at(send.node).link;
            after(delay, [this, node = send.node, link, message = send.message] {
                if (agents.at(node).link == link && agents.at(node).up) home_hears(node, message);
            });
        }
    }
    void home_hears(const NodeName& node, const FromMarket& message) {
        home_step(node, [&](Home& h, home::Outputs& out) {
            if (const auto* order = std::get_if<Order>(&message)) {
                if (order->kind == Order::Kind::run && h.find(order->id) &&
                    h.find(order->id)->phase != JobPhase::running)
                    facts.at(order->id).told_price = order->price;
                h.order(*order, now, out);
            }
            if (const auto* note = std::get_if<JobNote>(&message)) {
                Facts& f = facts.at(note->id);
                f.told_cost = note->cost;
                f.told_price = note->price;
                f.told_at_run = ran(note->id);
                h.note(*note, now, out);
            }
        });
    }
    void run_until(Nanos end) {
        for (int steps = 0;; ++steps) {
            ck_assert_msg(steps < 500'000, "it never comes to rest");
            market_step();
            if (after_step) after_step();
            Nanos next = now < silent_until ? silent_until : std::max(now, market->next_call());
            if (!events.empty()) next = std::min(next, std::max(now, events.begin()->first));
            for (const auto& [name, a] : agents) next = std::min(next, std::max(now, a.tick));
            if (next > end) break;
            now = next;
            while (!events.empty() && events.begin()->first <= now) {
                const auto what = std::move(events.begin()->second);
                events.erase(events.begin());
                what();
            }
            for (auto& [name, a] : agents)
                if (a.tick <= now) home_step(name, [](Home&, home::Outputs&) {});
        }
        now = end;
    }
    void run_for(Nanos span) { run_until(now + span); }
};

}  // namespace souk::unit
