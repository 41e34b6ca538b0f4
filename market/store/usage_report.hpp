// SPDX-License-Identifier: GPL-2.0-or-later
// The answer to `report`: the sums of market/store/usage.hpp by user, node or day.
#pragma once

#include <string>
#include <vector>

#include "kernel/base/result.hpp"
#include "market/store/usage.hpp"

namespace souk {

// `filters`: by=user|node|day, since=UNIX_SECONDS, until=UNIX_SECONDS. Who is not root is told of
// the own use alone. The whole is added up at once: 100,000 rows at most (about 0.2 s).
Result<std::string> report_reply(const UsageBook& book, const std::vector<std::string>& filters,
                                 uint32_t uid);

}  // namespace souk
