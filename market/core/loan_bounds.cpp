// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/loan_bounds.hpp"

#include <algorithm>
#include <utility>

#include "market/core/lent_jobs.hpp"

namespace souk::market::loan_bounds {

void count_trip(Loan& loan, Nanos unix) {
    constexpr Nanos trip_apart = LentJobs::trip_apart;
    constexpr int64_t trips_at_once = LentJobs::trips_at_once;
    const Nanos most = unix + Nanos{trip_apart.ns * (trips_at_once - 1)};
    loan.trips = std::min(std::max(loan.trips, unix), most) + trip_apart;
}

SiteVisit& visit_of(Loan& loan, const std::string& site) {
    const auto visit = std::ranges::find(loan.visits, site, &SiteVisit::site);
    if (visit != loan.visits.end()) return *visit;
    if (loan.visits.size() >= Loan::visits_max)
        loan.visits.erase(std::ranges::min_element(loan.visits, {}, [](const SiteVisit& one) {
            return std::pair(one.owed != 0, one.again);
        }));
    loan.visits.emplace_back().site = site;
    return loan.visits.back();
}

SiteVisit& rest(Loan& loan, const std::string& site, bool was_long, Nanos unix) {
    constexpr Nanos rest_most = LentJobs::rest_most;
    SiteVisit* const visit = &visit_of(loan, site);
    if (was_long || visit->again + rest_most < unix) visit->tries = 0;
    Nanos span = LentJobs::rest_least;
    for (uint32_t n = 0; n < visit->tries && span < rest_most; ++n) span = span + span;
    visit->tries = std::min<uint32_t>(visit->tries + 1, 32);
    visit->again = unix + std::min(span, rest_most);
    return *visit;
}

}  // namespace souk::market::loan_bounds
