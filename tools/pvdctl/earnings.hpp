// SPDX-License-Identifier: GPL-2.0-or-later
// Shows what a node has earned, and what it would earn, from the market's receipts and prices.
#pragma once

#include <span>

#include "tools/common/ctl.hpp"

namespace souk::tools {

// `earnings [DAYS]` and `forecast`. Errors: wrong usage.
Result<CtlQuestion> parse_earnings(std::span<char*> words);

}  // namespace souk::tools
