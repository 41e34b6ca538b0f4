// SPDX-License-Identifier: GPL-2.0-or-later
// The network of a market on one host: one namespace per node and one, the fabric, that holds a
// bridge between them and is where the market listens. No address, link or mount of the host is
// touched: a namespace lives by the descriptors that the supervisor holds, and /run/netns/NAME is a
// link to one, for `ip netns exec`.
#pragma once

#include <string>
#include <vector>

#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {

struct Netns {
    std::string name;
    Fd fd;
};

struct Network {
    Netns fabric;
    std::vector<Netns> nodes;
};

// The fabric's address, where the market listens, and the address of node `index` (from 0; at most
// 200 nodes).
std::string fabric_address();
std::string node_address(size_t index);
inline constexpr size_t nodes_max = 200;
// Jobs with a network of their own: each node has a bridge with its wire to the fabric as a port,
// and gives addresses of a share of the range; the fabric is their gateway.
inline constexpr const char* job_network = "10.79.64.0/18";
inline constexpr const char* job_bridge = "br0";
std::string job_gateway();
std::string job_addresses(size_t index);

// Creates and wires everything; on failure nothing is left. Needs root and `ip` (iproute2).
Result<Network> create_network(const std::string& tag, const std::vector<std::string>& node_names);
// Removes the names under /run/netns; the namespaces go with their last process or descriptor.
void remove_network_names(const std::vector<std::string>& names);

// Enters the namespace, in a child between fork and exec.
Status enter(const Netns& ns);

}  // namespace souk
