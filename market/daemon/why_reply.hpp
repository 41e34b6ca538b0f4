// SPDX-License-Identifier: GPL-2.0-or-later
// The answer to `why`: all reasons (market/core/reason.hpp) about one job or node.
#pragma once

#include <cstdint>
#include <string>

#include "kernel/base/result.hpp"
#include "market/core/market.hpp"
#include "market/store/finished.hpp"

namespace souk {

// `name`: a job's id or a node's name. Of others' jobs only root hears more than the state. Errors:
// there is none of that name.
Result<std::string> why_reply(const market::Market& market, const FinishedJobs& finished,
                              const std::string& name, uint32_t uid, Nanos now);

}  // namespace souk
