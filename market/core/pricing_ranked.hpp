// SPDX-License-Identifier: GPL-2.0-or-later
// The critical price where ranks say all: every competing job needs one CPU, memory is in nobody's
// way and nobody is barred. What pricing_integral gives, in O(jobs placed + classes) for all. Pure,
// owned by nobody.
#pragma once

#include <vector>

#include "market/core/allocator.hpp"

namespace souk::market {

// Price per CPU-hour by job index; `done` says whose: none if the market is not of that kind, nor
// who sits where ranks alone would not put it (pinned, protected by min_stay, or a horizon).
//
// `by_user`: jobs of one user do not price each other, as in pricing_integral.hpp. Who has lower
// ranked jobs of its user then takes O(classes x log) of its own, also if it sits elsewhere (but
// not if a pinned one needs more memory than those who compete). Where that passes pivot_steps_max
// (ranked_users.hpp) in all, each job is priced for itself.
std::vector<Money> ranked_prices(Allocator& market, std::vector<bool>& done, bool by_user = false);

}  // namespace souk::market
