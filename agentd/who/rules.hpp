// SPDX-License-Identifier: GPL-2.0-or-later
// What the owner of a node lets souk-root start processes for (who.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace souk::who {

// As the owner's configuration has them when agentd begins.
struct Rules {
    std::string node;
    bool any = false;        // there are no certificates
    bool root_jobs = false;  // jobs of root that begin here
    bool accepts = false;    // jobs of other homes without a ticket, too (tickets = "accepted")
    uint32_t id_min = 1'000;
    std::vector<std::string> groups = {"*"};  // guest_groups
    // Directories: root's, and of this node's certificate. The file of the map; empty: none.
    std::string kept, identity, map;
};

}  // namespace souk::who
