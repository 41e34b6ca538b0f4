// SPDX-License-Identifier: GPL-2.0-or-later
// PortClient: PortWork that souk-root does (ports.hpp), for an agentd that may not. Outlived by the
// Helper that asks.
#pragma once

#include <vector>

#include "agentd/root/helper.hpp"

namespace souk::root {

Result<MadePort> open_port(Helper& helper, const Pidfd& init, const PortPlan& plan);

}  // namespace souk::root
