// SPDX-License-Identifier: GPL-2.0-or-later
// Places that are sold ahead, or asked for, as marketctl asks for them (reservations).
#pragma once

#include <string>

#include "kernel/base/result.hpp"
#include "market/core/market.hpp"

namespace souk {

// All of them by id, as user `uid` may see them; those of which the time is over are left out.
// `after` and `next`: where the list goes on.
Result<std::string> reservations_reply(const market::Market& market, const std::string& after,
                                       Nanos now, uint32_t uid, std::string& next);

}  // namespace souk
