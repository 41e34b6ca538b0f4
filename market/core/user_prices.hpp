// SPDX-License-Identifier: GPL-2.0-or-later
// Prices where classes and ranks say all (ClassMarket::exact): prices per class, and each user as
// one bidder.
//
// The price of a class is the lowest competitive one (assignment.hpp). A user with one job pays
// just that: it is what the others lose by the job (Clarke, "Multipart pricing of public goods",
// 1971). A user with several pays what the others lose by all of them: the welfare that the others
// would have without this user, less what they have now. Own jobs so never price each other, and
// splitting work into jobs of one user gains nothing. That sum is at least the reserves and at most
// the class prices of the jobs (Gul and Stacchetti, "Walrasian equilibrium with gross substitutes",
// 1999), so each job's share is between its reserve and its class's price: all by the same part of
// the way.
#pragma once

#include <vector>

#include "market/core/class_market.hpp"

namespace souk::market {

// Price per CPU-hour by job index, rounded down to a micro-unit; meaningless for jobs that do not
// run. O(jobs) and, for each user with more than one job, O(its placed jobs x classes): where that
// passes `pivot_steps_max` (ranked_users.hpp) in all, every job pays its class's price. A job that
// sits where the best assignment would not put it (pinned, protected, or a horizon) pays the price
// of the class where it sits, at most what that is worth to it, at least the reserve, never above
// its bid.
std::vector<Money> user_prices(const Allocator& market, const ClassMarket& classes);

}  // namespace souk::market
