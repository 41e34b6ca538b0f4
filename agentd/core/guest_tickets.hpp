// SPDX-License-Identifier: GPL-2.0-or-later
// GuestTickets: which commands of another node's home are carried out. Part of Guest. The shell has
// verified who signed a ticket (Warrant); here is decided whether it allows what is asked: the job,
// its home, the nodes, the user, the time, and that it is the newest of its job.
//
// start, prepare, keep: the ticket's destination is this node. An image is taken from the ticket's
// source alone. ship: its source is this node; name and address of the destination are the
// ticket's. checkpoint: the image goes to the job's home, which needs no ticket for that. How much
// the capsule gets is the ticket's word too. All other commands are about what is here already:
// whoever brought it may let it go on, freeze and end it, also while the market is away.
//
// One ticket begins one copy, or sends one image. `mark` is the highest number that was ever
// admitted here: after a restart a ticket up to it is refused, since this daemon does not know any
// more what it was used for. A command about a (job, epoch) that is here already asks for nothing
// new.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "agentd/core/messages.hpp"
#include "kernel/base/result.hpp"
#include "market/core/ticket.hpp"

namespace souk {

enum class TicketRule : uint8_t {
    none,      // there are no certificates, so nobody is who he says he is
    accepted,  // one that is shown must be good
    required,
};

// The ticket that a command shows, as the shell knows it.
struct Warrant {
    std::optional<Ticket> ticket;  // its signature is the market's, and it names no revoked key
    std::string trouble;           // why the one that was shown is none
    Nanos now;                     // Unix time, as the market's clock shows it
    uint32_t uid = 0;              // whose job it is, by its home's word
};

class GuestTickets {
  public:
    GuestTickets(NodeName node, TicketRule rule) : node_(std::move(node)), rule_(rule) {}
    // Before anything else: as it was kept.
    void restored(uint64_t mark) { mark_ = restored_ = mark; }

    // An error says why that command is not carried out. Otherwise what the ticket says is in it.
    Status admit(const NodeName& from, GuestCommand& command, const Warrant& warrant);
    uint64_t mark() const { return mark_; }

  private:
    struct Used {
        uint64_t number = 0;
        Epoch epoch;
        Nanos until;
    };
    Status fits(const Ticket& ticket, const GuestCommand& command, const Warrant& warrant) const;
    Status is_newest(const Ticket& ticket, const GuestCommand& command) const;
    void use(const Ticket& ticket, Epoch epoch, Nanos now);

    NodeName node_;
    TicketRule rule_;
    uint64_t mark_ = 0, restored_ = 0;
    std::map<JobId, Used> used_;  // the newest of each job, until it is over
    size_t forget_at_ = 64;
};

}  // namespace souk
