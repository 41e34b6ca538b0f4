// SPDX-License-Identifier: GPL-2.0-or-later
// KeptOffers: the places that are kept for a while for jobs of other sites, to which they were
// offered (docs/sites.md). Such a job has no record here. A Job that nobody else sees stands for it
// beside those with contracts, so that its place is sold to nobody.
//
// Nothing of it is stored: after a restart nothing is kept. Pure; owned by Reservations.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "market/core/market_state.hpp"

namespace souk::market {

class KeptOffers {
  public:
    using Key = std::pair<std::string, JobId>;  // a site, and its job

    // In place of what is kept for that job.
    void keep(const Key& of, const JobTerms& terms, Contract contract);
    void drop(const Key& of) { jobs_.erase(of); }
    // Those whose time has passed (Unix time) are kept no longer.
    void forget(Nanos unix);
    const std::map<Key, Job>& jobs() const { return jobs_; }
    // So many CPUs are kept for other jobs of its site.
    int64_t cpus_beside(const Key& of, Nanos unix) const;

  private:
    std::map<Key, Job> jobs_;
};

}  // namespace souk::market
