// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/home_index.hpp"

namespace souk {

void HomeIndex::put(uint64_t job, Nanos due, std::vector<NodeName> guests) {
    const auto known = entries_.find(job);
    Entry is{due, std::move(guests)};
    const Entry was = known == entries_.end() ? Entry{} : std::move(known->second);
    if (is.due != was.due) {
        by_due_.erase({was.due, job});
        if (is.due != Nanos::never()) by_due_.emplace(is.due, job);
    }
    if (is.guests != was.guests) {
        for (const NodeName& node : was.guests)
            if (const auto it = by_guest_.find(node); it->second.erase(job) && it->second.empty())
                by_guest_.erase(it);
        for (const NodeName& node : is.guests) by_guest_[node].insert(job);
    }
    if (is != Entry{})
        entries_.insert_or_assign(known, job, std::move(is));
    else if (known != entries_.end())
        entries_.erase(known);
}

std::vector<uint64_t> HomeIndex::due(Nanos now) const {
    std::vector<uint64_t> jobs;
    for (auto it = by_due_.begin(); it != by_due_.end() && it->first <= now; ++it)
        jobs.push_back(it->second);
    return jobs;
}

const HomeIndex::Jobs& HomeIndex::of_guest(const NodeName& node) const {
    static const Jobs none;
    const auto it = by_guest_.find(node);
    return it == by_guest_.end() ? none : it->second;
}

}  // namespace souk
