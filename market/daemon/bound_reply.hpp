// SPDX-License-Identifier: GPL-2.0-or-later
// The answer to `limits`: how many jobs and nodes the market takes, how many it has, and which
// homes have the most or were refused some (tools/common/replies.md).
#pragma once

#include <string>

#include "market/core/market.hpp"

namespace souk {

std::string bounds_reply(const market::Market& market);

}  // namespace souk
