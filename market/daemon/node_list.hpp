// SPDX-License-Identifier: GPL-2.0-or-later
// Nodes as marketctl asks for them (list-providers).
#pragma once

#include <string>
#include <vector>

#include "market/core/market.hpp"

namespace souk {

// `words`: any of node=NAME, match=TEXT (the name holds it) and page=NUMBER (at most so many in one
// part). `uncertified`: who has come without a certificate where others have one, by name. By name;
// `after` and `next`: where the list goes on.
Result<std::string> list_nodes_reply(const market::Market& market,
                                     const std::vector<NodeName>& uncertified,
                                     const std::vector<std::string>& words,
                                     const std::string& after, Nanos now, std::string& next);

}  // namespace souk
