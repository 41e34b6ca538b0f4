// SPDX-License-Identifier: GPL-2.0-or-later
// The simulated network: see cluster.hpp.
#include <algorithm>

#include "tests/sim/cluster.hpp"

namespace souk::sim {

namespace {
constexpr size_t queue_max = 256;
}  // namespace

// An epoch is bound for ever by the first start or prepare that carries it, and each new one is
// above all others.
void Cluster::check_epoch(const GuestCommand& c, const NodeName& guest) {
    if (c.verb != GuestVerb::start && c.verb != GuestVerb::prepare && c.verb != GuestVerb::keep)
        return;
    auto& bound = epochs_[c.id];
    const auto it = bound.find(c.epoch.n);
    if (it == bound.end()) {
        if (!bound.empty() && bound.rbegin()->first > c.epoch.n)
            world_.fail(c.id, "an epoch goes back to " + std::to_string(c.epoch.n));
        bound[c.epoch.n] = {guest, c.verb};
    } else if (it->second != std::pair{guest, c.verb}) {
        world_.fail(c.id, "epoch " + std::to_string(c.epoch.n) + " is used twice");
    }
}

void Cluster::to_guest(Node& home, const Peer& peer, const GuestCommand& c) {
    check_epoch(c, peer.node);
    Link& l = link(home, peer.node);
    if (l.state == Link::State::up) return transmit(home, peer.node, c);
    if (queue_while_down_ && l.queue.size() < queue_max) l.queue.push_back(c);
    if (l.state == Link::State::down) connect(home.name, peer.node);
}

void Cluster::transmit(Node& home, const NodeName& guest, const ToGuest& message) {
    const auto* command = std::get_if<GuestCommand>(&message);
    const char* const name = command ? to_string(command->verb) : "heartbeat";
    const GuestKey key = command ? GuestKey{command->id, command->epoch} : GuestKey{};
    Link& l = link(home, guest);
    const uint64_t gen = l.home_gen;
    // of an answer, which is older the longer it takes
    const Nanos slow = command ? ms(100, 3000) : ms(100, 10'000);
    l.last_guest =
        std::max(l.last_guest + Nanos{1}, now_ + (fault(slow_chance_) ? slow : ms(0, 5)));
    say(home.name, " -> ", guest, " ", name, " ", key);
    const auto sent = std::make_shared<const ToGuest>(message);
    after(l.last_guest - now_, [this, h = home.name, guest, sent, key, gen, name] {
        Link& on = link(h, guest);
        Node& g = node(guest);
        const bool cut = on.broken && now_ > on.cut_guest;
        const bool lost = !g.up || on.guest_gen != gen || (on.gen == gen && cut);
        if (lost && !(mutation_ == Mutation::read_old_connection && g.up))
            return say("  lost: ", h, " -> ", guest, " ", name, " ", key);
        const auto arrive = [this, h, guest, sent] {
            Node& there = node(guest);
            guest_step(there, [&](Guest& m, guest::Outputs& out) {
                const auto* heartbeat = std::get_if<Heartbeat>(sent.get());
                if (heartbeat) return m.heartbeat_answered(h, *heartbeat, local(there), out);
                const GuestCommand& c = std::get<GuestCommand>(*sent);
                m.command(h, c, out, warrant_of(c));
                overhear(there, c, out);
            });
        };
        if (lost) return after(ms(0, 3000), arrive);
        arrive();
        if (mutation_ != Mutation::undelivered_after_send ||
            std::holds_alternative<Heartbeat>(*sent) || !rng_.chance(0.02))
            return;
        home_step(node(h), [&](Home& m, home::Outputs& out) {
            m.undelivered(guest, std::get<GuestCommand>(*sent), now_, out);
        });
    });
    if (guest != home.name && fault(break_chance_)) break_link(home.name, guest);
}

void Cluster::to_home(Node& guest, const NodeName& home, const guest::HomeWord& message) {
    Link& l = link(home, guest.name);
    if (l.guest_gen == 0) return;  // no connection: the home node asks when it is back
    const uint64_t gen = l.guest_gen;
    l.last_home =
        std::max(l.last_home + Nanos{1}, now_ + (fault(slow_chance_) ? ms(100, 3000) : ms(0, 5)));
    after(l.last_home - now_, [this, home, g = guest.name, message, gen] {
        Link& on = link(home, g);
        Node& h = node(home);
        const bool cut = on.broken && now_ > on.cut_home;
        if (!h.up || on.home_gen != gen || (on.gen == gen && cut))
            return say("  lost: ", g, " -> ", home, " an event");
        if (const auto* e = std::get_if<GuestEvent>(&message)) {
            GuestEvent heard = *e;
            const HomeJob* job = h.home->find(e->id);
            if (is_liar(g) && !is_liar(home)) alter(heard);
            const auto& bound = epochs_[e->id];
            const auto its = bound.find(e->epoch.n);
            const bool as_its = mutation_ == Mutation::heard_from_anybody && is_liar(g);
            const NodeName from = as_its && its != bound.end() ? its->second.first : g;
            if (mutation_ == Mutation::any_source_is_fenced && job) heard.held_for = job->to_epoch;
            home_step(h,
                      [&](Home& m, home::Outputs& out) { m.guest_event(from, heard, now_, out); });
        } else if (const auto* heartbeat = std::get_if<Heartbeat>(&message)) {
            home_step(h,
                      [&](Home& m, home::Outputs& out) { m.heartbeat(g, *heartbeat, now_, out); });
        } else {
            const Expel& x = std::get<Expel>(message);
            home_step(h, [&](Home& m, home::Outputs& out) { m.expel(g, x, now_, out); });
        }
    });
    if (guest.name != home && fault(break_chance_)) break_link(home, guest.name);
}

void Cluster::break_link(const NodeName& home, const NodeName& guest) {
    Link& l = link(home, guest);
    if (l.broken || l.state != Link::State::up) return;
    ++counts_.breaks;
    say("the connection ", home, " -> ", guest, " breaks");
    for (const NodeName& end : {home, guest}) leave_watch_.trouble(end, now_ + Nanos::from_s(1));
    l.broken = true;
    l.cut_guest = now_ + ms(0, 10);
    l.cut_home = now_ + ms(0, 10);
    const uint64_t gen = l.gen;
    guest_notices(home, guest, (l.cut_guest - now_) + (fault(0.2) ? ms(0, 20'000) : ms(0, 50)));
    after((l.cut_home - now_) + (fault(0.2) ? ms(0, 20'000) : ms(0, 50)), [this, home, guest, gen] {
        Link& on = link(home, guest);
        if (on.gen != gen || on.home_gen != gen) return;
        on.state = Link::State::down;
        on.home_gen = 0;
        if (Node& h = node(home); h.up) keep_connected(h);
    });
}

// The guest's end of it; its newest is of no more use.
void Cluster::guest_notices(const NodeName& home, const NodeName& guest, Nanos delay) {
    after(delay, [this, home, guest, gen = link(home, guest).guest_gen] {
        Link& on = link(home, guest);
        if (gen == 0 || on.guest_gen != gen) return;
        on.guest_gen = 0;
        guest_step(node(guest), [&](Guest& g, guest::Outputs&) { g.home_down(home); });
    });
}

void Cluster::keep_connected(Node& home) {
    for (const NodeName& guest : home.home->guests_needed())
        if (link(home, guest).state == Link::State::down) connect(home.name, guest);
}

void Cluster::connect(const NodeName& home, const NodeName& guest) {
    Link& l = link(home, guest);
    l.state = Link::State::connecting;
    const uint64_t life = node(home).life;
    after(fault(slow_chance_) ? ms(100, 3000) : ms(0, 20), [this, home, guest, life] {
        Node& h = node(home);
        Node& g = node(guest);
        if (h.life != life || !h.up) return;
        Link& on = link(home, guest);
        if (g.up && !cut_.contains({home, guest}) && !(guest != home && fault(0.1))) {
            // The guest takes the hello: whatever the older connection still carries is not read
            // any more.
            on.guest_gen = ++on.gen;
            on.broken = false;
            on.last_guest = on.last_home = now_;
            const Nanos back = ms(0, 5);
            on.last_home = now_ + back;
            guest_step(g, [&](Guest& m, guest::Outputs& out) { m.home_up(home, out); });
            return after(back, [this, home, guest, gen = on.gen, life] {
                if (node(home).life == life && node(home).up) connected(home, guest, gen);
            });
        }
        const std::deque<GuestCommand> queue = std::exchange(on.queue, {});
        for (const GuestCommand& c : queue) {
            if (!h.up || h.life != life) return;
            say(home, " cannot reach ", guest, ": ", to_string(c.verb), " ",
                GuestKey{c.id, c.epoch});
            home_step(h, [&](Home& m, home::Outputs& out) { m.undelivered(guest, c, now_, out); });
        }
        if (!h.up || h.life != life) return;
        after(ms(50, 1000), [this, home, guest, life] {
            Node& again = node(home);
            if (!again.up || again.life != life) return;
            link(home, guest).state = Link::State::down;
            keep_connected(again);
        });
    });
}

void Cluster::connected(const NodeName& home, const NodeName& guest, uint64_t gen) {
    Link& l = link(home, guest);
    Node& h = node(home);
    l.state = Link::State::up;
    l.home_gen = gen;
    say(home, " is connected to ", guest);
    const std::deque<GuestCommand> queue = std::exchange(l.queue, {});
    // before the questions, so that no answer is older than a command
    for (const GuestCommand& c : queue)
        if (h.up && link(home, guest).home_gen == gen) transmit(h, guest, c);
    home_step(h, [&](Home& m, home::Outputs& out) { m.guest_up(guest, now_, out); });
    // the guest died meanwhile
    if (l.home_gen == gen && l.guest_gen != gen) break_link(home, guest);
}

}  // namespace souk::sim
