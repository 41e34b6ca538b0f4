// SPDX-License-Identifier: GPL-2.0-or-later
// Finds the daemons' unix sockets. $SOUK_RUN (default /run/souk) holds agentd.sock and marketd.sock
// of a real installation, and for a market of `souk up` NODE/agentd.sock for each node and
// market/marketd.sock.
#pragma once

#include <string>

#include "kernel/base/result.hpp"

namespace souk::wire {

std::string run_directory();
std::string node_socket(const std::string& run, const std::string& node);
std::string market_socket(const std::string& run);

// Finds a tool's agentd: `socket` (--socket) if given, else that of `node` (--node, or $SOUK_NODE),
// else this machine's, else the first node of `souk up`. The error says that there is none, and how
// to get one.
Result<std::string> find_agentd(const std::string& socket, const std::string& node);
// Finds the daemon that answers marketctl: the agentd of `socket` or `node` if one is named, else
// the market on this machine, else this machine's agentd, which passes the question on.
Result<std::string> find_market(const std::string& socket, const std::string& node);

}  // namespace souk::wire
