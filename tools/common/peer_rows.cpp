// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/peer_rows.hpp"

#include "kernel/base/text.hpp"

namespace souk::tools {

std::string peer_state(const Json& peer) {
    if (!peer.value("connected", false)) return "away";
    const bool there = peer.value("called", false), here = peer.value("calls", false);
    return there && here ? "connected" : there ? "connected, called" : "connected, calls";
}

std::string owes_text(const Json& peer, const char* key) {
    if (!peer.contains(key)) return "";
    const std::string text = field(peer, key);
    return text.starts_with('-') ? "we owe it " + text.substr(1) : "it owes us " + text;
}

std::string peer_line(const Json& peer) {
    const std::string owes = owes_text(peer, "owes");
    return field(peer, "site") + (peer.value("connected", false) ? " connected: " : " away: ") +
           field(peer, "guests") + " jobs of it here, " + field(peer, "lent") + " of ours there" +
           (owes.empty() ? "" : ", " + owes);
}

std::string peers_line(const Json& peers) {
    std::string text;
    for (const Json& peer : peers) text += (text.empty() ? "sites: " : "; ") + peer_line(peer);
    return blank_controls(text);
}

}  // namespace souk::tools
