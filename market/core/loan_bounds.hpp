// SPDX-License-Identifier: GPL-2.0-or-later
// Bounds on how often the markets give a job to other sites (docs/sites.md): the trips that they
// make with it, and the pauses before it goes to a site again. Both are in its Loan, and so on
// disk. Pure; for LentJobs.
#pragma once

#include <string>

#include "market/core/market_io.hpp"

namespace souk::market::loan_bounds {

void count_trip(Loan& loan, Nanos unix);
SiteVisit& visit_of(Loan& loan, const std::string& site);
// The markets try that site no more for a pause, be it home (an empty name).
SiteVisit& rest(Loan& loan, const std::string& site, bool was_long, Nanos unix);

}  // namespace souk::market::loan_bounds
