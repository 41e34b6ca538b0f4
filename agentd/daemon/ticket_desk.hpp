// SPDX-License-Identifier: GPL-2.0-or-later
// TicketDesk: whether a ticket is the market's, and what time it is by the market's clock. It holds
// the keys that the market has told, also on disk: tickets are verified while the market is away.
// The list of keys is signed by the market's issuing authority. A market of an older version does
// not sign it: its word is taken as long as no signed list has been.
// The market's time is counted on from when it was told, by a clock that nobody sets; before that
// it is this node's own. What a ticket allows is decided by the Guest
// (agentd/core/guest_tickets.hpp).
#pragma once

#include <optional>
#include <string>

#include "agentd/core/guest_tickets.hpp"
#include "kernel/trust/revocations.hpp"
#include "kernel/trust/ticket_key.hpp"
#include "kernel/trust/ticket_list.hpp"
#include "kernel/wire/messages.hpp"

namespace souk {

class TicketDesk {
  public:
    // Opens that directory of identity. Errors: what lies there cannot be read.
    static Result<TicketDesk> open(std::string dir);
    // The market tells its keys over its connection. `now`: Loop::now(), `unix`: this node's clock.
    Status told(const wire::TicketKeys& word, const trust::Key& issuer, Nanos now, Nanos unix);
    // The signed list alone (kernel/trust/ticket_list.hpp).
    Status take(const std::string& list, const trust::Key& issuer);
    // How far this node's own clock is behind the market's; negative: before it. As last told.
    Nanos behind() const { return behind_; }
    // Reads the ticket that a command shows.
    Warrant warrant(const GuestCommand& command, const trust::Revocations& revoked, Nanos now,
                    Nanos unix) const;

  private:
    explicit TicketDesk(std::string dir) : dir_(std::move(dir)) {}
    Status take_unsigned(const std::string& keys);
    std::string dir_, text_;
    trust::TicketKeys keys_;
    std::optional<trust::TicketList> list_;  // where they come from; none: not signed
    bool has_time_ = false;
    Nanos calendar_, behind_;  // the market's Unix time less Loop::now()
};

}  // namespace souk
