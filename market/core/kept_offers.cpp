// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/kept_offers.hpp"

#include <utility>

namespace souk::market {

void KeptOffers::keep(const std::string& name, const JobTerms& terms, Contract contract) {
    Job job;
    job.record.report.terms = terms;
    job.record.contract = std::move(contract);
    jobs_.insert_or_assign(name, std::move(job));
}

void KeptOffers::forget(Nanos unix) {
    std::erase_if(jobs_, [&](const auto& one) { return one.second.record.contract->end <= unix; });
}

int64_t KeptOffers::cpus_beside(const std::string& name, Nanos unix) const {
    const std::string site = name.substr(0, name.find('/') + 1);
    int64_t cpus = 0;
    for (auto it = jobs_.lower_bound(site); it != jobs_.end() && it->first.starts_with(site); ++it)
        if (const Contract& c = *it->second.record.contract; c.end > unix && it->first != name)
            cpus += c.cpus;
    return cpus;
}

}  // namespace souk::market
