// SPDX-License-Identifier: GPL-2.0-or-later
// Certificates without a network: of a market that is set up on this machine, and of all daemons of
// `souk up`, whose CA is of that market alone.
#pragma once

#include "kernel/trust/identity.hpp"
#include "tools/souk/instance.hpp"

namespace souk {

// A new authority in `dir`, with the market's own certificate. The root's key is given back, for a
// place that is not on the network.
Result<trust::Authority> make_market_identity(const std::string& dir, const std::string& name);

// A certificate, in `dir`, for a node of the market whose authority lies in `market_dir`.
Status make_node_identity(const std::string& dir, const std::string& node,
                          const std::string& market_dir);

// Each daemon's, in its state directory: what is there is kept, certificates are issued anew.
Status make_identities(const Instance& instance);

}  // namespace souk
