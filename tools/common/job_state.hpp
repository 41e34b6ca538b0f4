// SPDX-License-Identifier: GPL-2.0-or-later
// How a job of the market's JSON stands, for people.
#pragma once

#include <string>

#include "tools/common/table.hpp"

namespace souk::tools {

// Its status, and `stands` of one that is suspended and stands in memory by an order.
std::string job_state(const Json& job);

}  // namespace souk::tools
