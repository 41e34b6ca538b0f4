// SPDX-License-Identifier: GPL-2.0-or-later
// People are shown this of a peer (peer-list of replies.md), by several tools alike. Pure.
#pragma once

#include <string>

#include "tools/common/table.hpp"

namespace souk::tools {

// "connected, called", "away".
std::string peer_state(const Json& peer);
// "it owes us 12.5", by a key whose amount is below 0 if this site owes; empty: the key is missing.
std::string owes_text(const Json& peer, const char* key);
// "uni connected: 2 jobs of it here, 1 of ours there, we owe it 3".
std::string peer_line(const Json& peer);
// All of them in one line for a terminal; empty: there are none.
std::string peers_line(const Json& peers);

}  // namespace souk::tools
