// SPDX-License-Identifier: GPL-2.0-or-later
// The network of a market on one host: one namespace per node and one, the fabric, that holds a bridge between them and
// is where the market listens. No address, link or mount of the host is touched: a namespace lives by the descriptors
// that the supervisor holds, and /run/netns/NAME is a link to one, for `ip netns exec`.
#pragma once

#include <string>
#include <vector>

#include "kernel/base/result.hpp"
#include "kernel/sys/fd.hpp"

namespace souk {

struct Netns {
    std::string name;
    Fd fd;
};

struct Network {
    Netns fabric;
    std::vector<Netns> nodes;
};

// The fabric's address, where the market listens, and the address of node `index` (from 0; at most 200 nodes).
std::string fabric_address();
std::string node_address(size_t index);
inline constexpr size_t nodes_max = 200;

// Creates and wires everything; on failure nothing is left. Needs root and `ip` (iproute2).
Result<Network> create_network(const std::string& tag, const std::vector<std::string>& node_names);
// Removes the names under /run/netns; the namespaces go with their last process or descriptor.
void remove_network_names(const std::vector<std::string>& names);

// In a child between fork and exec: enters the namespace.
Status enter(const Netns& ns);

}  // namespace souk
