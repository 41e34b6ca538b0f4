// SPDX-License-Identifier: GPL-2.0-or-later
// Ticket: what the market's order lets a job's home do on nodes that are not its own: begin that
// job on `destination`, or bring it there from `source`. The market signs it
// (kernel/trust/ticket_key.hpp) and sends it with the order. The home shows it to both ends with
// the commands that it gives them. What they demand of it is in agentd/core/guest_tickets.hpp.
// Pure.
#pragma once

#include <string>
#include <vector>

#include "kernel/base/ids.hpp"
#include "kernel/base/ipv4.hpp"
#include "kernel/base/time.hpp"

namespace souk {

struct Ticket {
    JobId id;
    uint64_t number = 0;  // the order's: a newer one of that job ends an older one
    uint32_t uid = 0;     // whose job it is, at its home
    std::string user;
    NodeName source;       // where the job runs, or its image lies; empty: it begins
    NodeName destination;  // where it goes
    std::string address;   // where the destination's agentd listens
    int32_t cpus = 1;
    int64_t memory_mb = 0;  // 0: no limit
    // the digests of the keys of its home, its source and its destination, as far as the market is
    // connected to them: a ticket that names a revoked one is void
    std::vector<std::string> keys;
    Nanos issued, expires;       // Unix time, by the market's clock
    std::string realm = {};      // of the home's certificate; empty: the market's own
    Ipv4 job_address = {};       // of a job with a network of its own: it has no other
    bool names_address = false;  // an older market's ticket says nothing of that
    std::string resources = {};  // JobTerms::resources
    // The user's account on this site's nodes, by the operator's user map; empty: it names none.
    std::string account = {};
    bool operator==(const Ticket&) const = default;
};

// A start, a prepare or a ship may wait in the queue of a connection that is being made, and a
// market gives a new order when it has not heard of one for a minute.
inline constexpr Nanos ticket_life = Nanos::from_s(600);
// So far apart may the clock of the market and what a node takes for it be.
inline constexpr Nanos ticket_slack = Nanos::from_s(300);

}  // namespace souk
