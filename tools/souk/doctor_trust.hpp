// SPDX-License-Identifier: GPL-2.0-or-later
// The doctor examines this machine's certificates, keys, map of users and clock. It says one line
// for each, with the remedy. It says nothing of a daemon that is not configured here.
#pragma once

#include <string>
#include <vector>

#include "kernel/sys/host/probe.hpp"

namespace souk {

// These tell which kind of machine this is, by the daemons' configurations and keys.
bool keeps_a_market(const std::string& market);
bool is_a_node(const std::string& agent);
// `agent` and `market` are the daemons' configurations, of which one or both may be missing.
// `backups` is the directory of the market's backups.
std::vector<Need> examine_trust(const std::string& agent, const std::string& market,
                                const std::string& backups);

}  // namespace souk
