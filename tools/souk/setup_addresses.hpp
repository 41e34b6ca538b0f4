// SPDX-License-Identifier: GPL-2.0-or-later
// souk setup addresses: which addresses this node gives to the jobs that are submitted here
// (srun --net=own, -N, --mpi), and the bridge by which they reach those of other nodes.
#pragma once

#include <string>

#include "kernel/base/result.hpp"

namespace souk {

struct AddressPlan {
    std::string network = "10.77.0.0/16", bridge = "br-jobs", addresses, gateway;
};

// The range of that network for this node: by the number that its name ends in, which other nodes
// of such names do not have; empty: it has none that fits.
std::string addresses_by_name(const std::string& network, const std::string& node);

// The lines of agentd's configuration for it. Errors: a range is none, or not within the network,
// or the machine has no such bridge below `interfaces` (/sys/class/net).
Result<std::string> address_lines(const AddressPlan& plan, const std::string& interfaces);

}  // namespace souk
