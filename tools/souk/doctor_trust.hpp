// SPDX-License-Identifier: GPL-2.0-or-later
// What the doctor says of this machine's certificates, keys, map of users and clock: one line each,
// with the remedy. Nothing of a daemon that is not configured here.
#pragma once

#include <string>
#include <vector>

#include "kernel/sys/host/probe.hpp"

namespace souk {

// Which kind of machine this is, by the daemons' configurations and keys.
bool keeps_a_market(const std::string& market);
bool is_a_node(const std::string& agent);
// `agent`, `market`: the daemons' configurations, of which one or both may be missing. `backups`:
// the directory of the market's.
std::vector<Need> examine_trust(const std::string& agent, const std::string& market,
                                const std::string& backups);

}  // namespace souk
