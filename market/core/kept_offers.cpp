// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/kept_offers.hpp"

namespace souk::market {

void KeptOffers::keep(const Key& of, const JobTerms& terms, Contract contract) {
    Job job;
    job.record.report.terms = terms;
    job.record.contract = std::move(contract);
    jobs_.insert_or_assign(of, std::move(job));
}

void KeptOffers::forget(Nanos unix) {
    std::erase_if(jobs_, [&](const auto& one) { return one.second.record.contract->end <= unix; });
}

int64_t KeptOffers::cpus_beside(const Key& of, Nanos unix) const {
    int64_t cpus = 0;
    for (auto it = jobs_.lower_bound({of.first, {}}); it != jobs_.end(); ++it) {
        if (it->first.first != of.first) break;
        const Contract& c = *it->second.record.contract;
        if (c.end > unix && it->first != of) cpus += c.cpus;
    }
    return cpus;
}

}  // namespace souk::market
