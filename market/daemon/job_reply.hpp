// SPDX-License-Identifier: GPL-2.0-or-later
// One job as the market's JSON has it: in lists, and by itself.
#pragma once

#include <string>

#include "kernel/base/json.hpp"
#include "market/core/market.hpp"

namespace souk {

// wait, run, suspend, finish, or the phase between two of them.
const char* status_of(const market::Job& job);
std::string hold_of(const market::Job& job);
// `asker`: the uid of who is answered. Root and the job's user see all of it; others see the job's
// id, user and status: its command line, bid, cost and place are the user's own.
void write_job(JsonWriter& w, const market::Job& job, const market::Market& market, Nanos now,
               uint32_t asker);

}  // namespace souk
