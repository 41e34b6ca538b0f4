// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/guest_tickets.hpp"

#include <algorithm>

namespace souk {
namespace {

bool begins(GuestVerb verb) {
    return verb == GuestVerb::start || verb == GuestVerb::prepare || verb == GuestVerb::keep;
}

}  // namespace

Status GuestTickets::admit(const NodeName& from, GuestCommand& c, const Warrant& warrant) {
    if (rule_ == TicketRule::none || from == node_) return {};
    if (c.verb == GuestVerb::checkpoint && c.dest != from)
        return fail("a checkpoint goes to the job's home alone");
    const bool ships = c.verb == GuestVerb::ship;
    if (!ships && !begins(c.verb)) return {};
    if (!warrant.ticket) {
        if (!warrant.trouble.empty()) return fail(warrant.trouble);
        if (rule_ == TicketRule::accepted) return {};
        return fail(node_ +
                    " wants the market's ticket for that, and the home of the job shows "
                    "none (`tickets` of agentd's configuration)");
    }
    const Ticket& t = *warrant.ticket;
    TRY(fits(t, c, warrant));
    TRY(is_newest(t, c));
    use(t, ships ? c.new_epoch : c.epoch, warrant.now);
    if (ships) {
        c.dest_address = t.address;
    } else {
        c.source = t.source;
        c.cpus = t.cpus;
        c.memory_mb = t.memory_mb;
        c.resources = t.resources;
    }
    return {};
}

Status GuestTickets::fits(const Ticket& t, const GuestCommand& c, const Warrant& w) const {
    if (t.id != c.id) return fail("the ticket is for job " + t.id.text());
    if (w.now + ticket_slack < t.issued)
        return fail("the ticket is of a time that has not come: the clocks of " + node_ +
                    " and of the market differ");
    if (t.expires + ticket_slack <= w.now) return fail("the ticket has expired");
    if (c.verb == GuestVerb::ship) {
        if (t.source != node_) return fail("the ticket is not for a job on " + node_);
        if (t.destination != c.dest)
            return fail("the ticket is for a move to " + t.destination + ", not to " + c.dest);
        return {};
    }
    if (t.destination != node_) return fail("the ticket is for node " + t.destination);
    if (c.verb != GuestVerb::start && t.source.empty())
        return fail("the ticket is for a job that begins, and not for an image");
    if (t.uid != w.uid)
        return fail("the ticket is for a job of user " + std::to_string(t.uid) + ", not of user " +
                    std::to_string(w.uid));
    const Ipv4 address = c.spec.address;
    if (address && t.names_address && t.job_address != address)
        return fail("the ticket gives its job " +
                    (t.job_address ? "the address " + t.job_address.text() : "no address") +
                    ", not " + address.text());
    return {};
}

Status GuestTickets::is_newest(const Ticket& t, const GuestCommand& c) const {
    const auto it = used_.find(t.id);
    if (it == used_.end() || it->second.number < t.number) {
        if (t.number > restored_) return {};
        return fail("the ticket is from before " + node_ + "'s agentd was started");
    }
    if (it->second.number > t.number) return fail("there is a newer ticket for this job");
    // The same image to the same place may have to be sent once more.
    if (c.verb == GuestVerb::ship && it->second.epoch == c.new_epoch) return {};
    return fail("the ticket has been used");
}

// A ticket that is over need not be known any more: its time refuses it.
void GuestTickets::use(const Ticket& t, Epoch epoch, Nanos now) {
    used_[t.id] = {t.number, epoch, t.expires + ticket_slack};
    mark_ = std::max(mark_, t.number);
    if (used_.size() < forget_at_) return;
    std::erase_if(used_, [&](const auto& entry) { return entry.second.until <= now; });
    forget_at_ = std::max<size_t>(64, 2 * used_.size());
}

}  // namespace souk
