// SPDX-License-Identifier: GPL-2.0-or-later
// Says how a job of the market's JSON stands, for people.
#pragma once

#include <string>

#include "tools/common/table.hpp"

namespace souk::tools {

// Returns the job's status, and `stands` for one that is suspended and stands in memory by an
// order.
std::string job_state(const Json& job);

}  // namespace souk::tools
