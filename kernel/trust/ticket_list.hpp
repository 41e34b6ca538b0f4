// SPDX-License-Identifier: GPL-2.0-or-later
// TicketList: which keys a market signs its tickets with (kernel/trust/ticket_key.hpp), as a text
// that its issuing authority signs, as it signs the list of revoked keys:
//
//   souk ticket list 1
//   number 1794441600
//   key PUBLIC-HALF
//   signature HEXADECIMAL-DIGITS
//
// So a node believes no other word about them, whoever says it over what connection. The number
// grows with each change; who has seen one takes no older list, and no other one of that number.
// The market keeps its newest list in the file `ticket.list` beside its keys, a node the one that
// it has taken in `ticket-list` beside its certificate.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kernel/base/time.hpp"
#include "kernel/trust/key.hpp"

namespace souk::trust {

struct TicketList {
    uint64_t number = 0;
    std::string keys;  // lines, as TicketKeys::parse takes them
    bool operator==(const TicketList&) const = default;
};

Result<std::string> sign(const TicketList& list, const Key& issuing);
// An error if it is no such text, or not signed with that key.
Result<TicketList> parse_ticket_list(std::string_view text, const Key& issuing);

// The market's list of these keys, in its directory: the one that is there, or a new one with the
// next number, which is at least the Unix time in seconds. So numbers grow also when the file is
// lost, and when the clock is set back. `begins`: the daemon was just started. What lies there may
// then come from a backup, and nodes may have seen a later list: the same keys get a new number, if
// that can be written.
Result<std::string> keep_ticket_list(const std::string& dir, const std::string& keys,
                                     const Key& issuing, Nanos now, bool begins = false);

// A node's. Who wrote it is not looked at again: the authority may be another one since.
Status save_ticket_list(const std::string& dir, std::string_view text);
Result<std::optional<TicketList>> load_ticket_list(const std::string& dir);

}  // namespace souk::trust
