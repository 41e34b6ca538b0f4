// SPDX-License-Identifier: GPL-2.0-or-later
// What the doctor says of this machine's certificates, keys, map of users and clock: one line each,
// with the remedy. Nothing of a daemon that is not configured here.
#pragma once

#include <string>
#include <vector>

#include "kernel/sys/host/probe.hpp"

namespace souk {

// `agent`, `market`: the daemons' configurations, of which one or both may be missing.
std::vector<Need> examine_trust(const std::string& agent, const std::string& market);

}  // namespace souk
