// SPDX-License-Identifier: GPL-2.0-or-later
// The owner of a node decides with these for whom souk-root starts processes (who.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace souk::who {

// The owner's configuration has these when agentd begins.
struct Rules {
    std::string node;
    bool any = false;        // there are no certificates
    bool root_jobs = false;  // jobs of root that begin here
    bool accepts = false;    // jobs of other homes without a ticket, too (tickets = "accepted")
    uint32_t id_min = 1'000;
    std::vector<std::string> groups = {"*"};  // guest_groups
    // `kept` is a directory of root's, `identity` that of this node's certificate. `map` is the
    // file of the map; empty: none.
    std::string kept, identity, map;
};

}  // namespace souk::who
