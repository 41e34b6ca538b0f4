// SPDX-License-Identifier: GPL-2.0-or-later
// The doctor asks the daemons of this machine: whether they answer, whether the market takes this
// node, and whether the market's records are copied.
#pragma once

#include <string>
#include <vector>

#include "kernel/sys/host/probe.hpp"

namespace souk {

// The agentd with this configuration. `renew`: what gives it a new certificate.
void examine_agentd(const std::string& config, const std::string& renew, std::vector<Need>& needs);
// The marketd with this configuration, and the newest copy in `backups`.
void examine_marketd(const std::string& config, const std::string& backups,
                     std::vector<Need>& needs);

}  // namespace souk
