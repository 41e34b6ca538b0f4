// SPDX-License-Identifier: GPL-2.0-or-later
// souk peer: the other sites that this market has as peers (docs/sites.md).
#pragma once

#include <string>

#include "tools/common/args.hpp"

namespace souk {

// The command line gives these.
struct PeerWords {
    std::string socket, address, card, site;
    // what a peer's jobs may do here; empty or 0: not given
    std::string users, projects, hours, least, credit;
    int64_t most_cpus = 0;
    bool none = false;
    // a payment between the two; empty: not given
    std::string amount, note, confirm;
    bool refuse = false, withdraw = false;
    bool as_json = false;
};

// `words` outlives the parsing.
tools::CommandLine peer_line(PeerWords& words);

}  // namespace souk
