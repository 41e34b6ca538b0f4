// SPDX-License-Identifier: GPL-2.0-or-later
// KeptOffers: the places that are kept for a while for jobs of other sites, to which they were
// offered (docs/sites.md). Such a job has no record here. A Job that nobody else sees stands for it
// beside those with contracts, so that its place is sold to nobody.
//
// Nothing of it is stored: after a restart nothing is kept. Pure; owned by Reservations.
#pragma once

#include <map>
#include <string>

#include "market/core/market_state.hpp"

namespace souk::market {

class KeptOffers {
  public:
    // In place of what is kept under that name, "SITE/JOB".
    void keep(const std::string& name, const JobTerms& terms, Contract contract);
    void drop(const std::string& name) { jobs_.erase(name); }
    // Those whose time has passed (Unix time) are kept no longer.
    void forget(Nanos unix);
    const std::map<std::string, Job>& jobs() const { return jobs_; }
    // So many CPUs are kept for its site under other names.
    int64_t cpus_beside(const std::string& name, Nanos unix) const;

  private:
    std::map<std::string, Job> jobs_;
};

}  // namespace souk::market
