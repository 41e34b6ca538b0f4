// SPDX-License-Identifier: GPL-2.0-or-later
// The plan of what is to run where and until when, as marketctl asks for it.
#pragma once

#include <string>
#include <vector>

#include "kernel/base/result.hpp"
#include "market/core/market.hpp"

namespace souk {

// `words`: until=SECONDS (Unix time), off=NODE@SECONDS (that node takes nobody from then on), each
// at most a hundred times. `after` and `next`: where the list goes on. `uid`: who asks;
// others than its user and root do not hear the name of a job.
Result<std::string> plan_reply(const market::Market& market, const std::vector<std::string>& words,
                               const std::string& after, Nanos now, uint32_t uid,
                               std::string& next);

}  // namespace souk
