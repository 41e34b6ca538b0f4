// SPDX-License-Identifier: GPL-2.0-or-later
// Tickets in the simulated cluster (an order carries its ticket's number, and that none can be
// forged is TLS's and Ed25519's business), and a home that misuses those which it was given.
#include <algorithm>

#include "tests/sim/cluster.hpp"

namespace souk::sim {

// Gives the order a ticket for the job as the market knows it. The market may be late: then the
// guest refuses, and the move fails.
void Cluster::give_ticket(Order& order) {
    const auto known = market_.find(order.id);
    if (order.kind != Order::Kind::run || known == market_.end()) return;
    const JobReport& r = known->second.report;
    const bool moves = r.phase == JobPhase::moving || r.phase == JobPhase::thawing;
    give_ticket(order, r.phase == JobPhase::waiting ? NodeName{} : moves ? r.to : r.where);
}

void Cluster::give_ticket(Order& order, const NodeName& source) {
    Ticket t;
    t.id = order.id;
    t.number = order.seq;
    t.source = source;
    t.destination = order.node;
    t.address = order.address;
    t.memory_mb = world_.truths.at(order.id).memory_mb;
    t.issued = now_;
    t.expires = now_ + ticket_life;
    order.ticket = std::to_string(t.number);
    tickets_.emplace(t.number, std::move(t));
}

Warrant Cluster::warrant_of(const GuestCommand& c) const {
    Warrant w;
    w.now = now_;
    w.uid = c.spec.launch.uid;
    if (!c.ticket.empty()) w.ticket = tickets_.at(std::stoull(c.ticket));
    return w;
}

void Cluster::overhear(const Node& guest, const GuestCommand& c, const guest::Outputs& out) {
    constexpr size_t overheard_max = 64;
    const bool taken = std::any_of(out.begin(), out.end(), [](const guest::Output& o) {
        const auto* a = std::get_if<guest::Audit>(&o);
        return a && a->why.empty();
    });
    const bool begins = c.verb == GuestVerb::start || c.verb == GuestVerb::prepare;
    if (!begins || c.ticket.empty()) return;
    if (!taken && mutation_ != Mutation::tickets_unchecked) return;
    if (overheard_.size() == overheard_max) overheard_.erase(overheard_.begin());
    overheard_.push_back({guest.name, guest.life, c});
}

// Says whether the guest still knows this ticket. A guest that crashed before the ticket was on
// disk has forgotten it. It has admitted nothing by that ticket, so the market's permission still
// stands.
bool Cluster::is_remembered(const Node& guest, uint64_t life, uint64_t number) {
    return guest.life == life || guest.mark_found >= number;
}

// A job that begins once more with a ticket that was good once. Nothing may come of it: not a
// second copy (world.hpp), and nothing that is left over.
void Cluster::hostile_home() {
    if (overheard_.empty()) return;
    const auto any = [this]() -> const Overheard& {
        return overheard_[hostile_.below(overheard_.size())];
    };
    const Overheard& o = any();
    GuestCommand c = o.command;
    const NodeName home = c.id.home;
    NodeName guest = o.guest, shown_to = o.guest;
    uint64_t life = o.life;
    const uint64_t kind = hostile_.below(3);
    if (kind == 1) guest = names_[hostile_.below(names_.size())];  // there it is for another node
    if (kind == 2) {
        const Overheard& other = any();
        c.ticket = other.command.ticket;
        shown_to = other.guest;
        life = other.life;
    }
    c.verb = GuestVerb::start;
    if (kind > 0 || hostile_.chance(0.7)) c.epoch.n += 1'000'000;
    Node& there = node(guest);
    if (guest == home || !there.up || link(home, guest).guest_gen == 0) return;
    // A permission of the market that the guest does not know as used is still good, so using it is
    // no misuse.
    const uint64_t number = std::stoull(c.ticket);
    if (guest == shown_to && !is_remembered(there, life, number)) return;
    say(home, " misuses ticket ", c.ticket, " on ", guest, " for ", GuestKey{c.id, c.epoch});
    guest_step(there,
               [&](Guest& g, guest::Outputs& out) { g.command(home, c, out, warrant_of(c)); });
}

}  // namespace souk::sim
