// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/standing.hpp"

#include <algorithm>
#include <tuple>

namespace souk::market {

void StandingJobs::won(uint64_t job, Nanos now) {
    const auto entry = jobs_.extract(job);
    if (!entry) return;
    const auto& [since, write] = entry.mapped();
    record_.won(now - since, write + write);
}

void StandingJobs::wanted(uint64_t job, Nanos now) {
    const auto entry = jobs_.extract(job);
    if (entry) record_.wanted(now - entry.mapped().since, entry.mapped().write);
}

Nanos StandingJobs::since(uint64_t job) const {
    const auto it = jobs_.find(job);
    return it == jobs_.end() ? Nanos{} : it->second.since;
}

std::vector<uint64_t> StandingJobs::who_goes(std::vector<One> standing, int64_t missing_mb) {
    std::sort(standing.begin(), standing.end(), [](const One& a, const One& b) {
        return std::tuple(a.bid, -a.since.ns, a.job) < std::tuple(b.bid, -b.since.ns, b.job);
    });
    std::vector<uint64_t> out;
    for (const One& one : standing) {
        if (missing_mb <= 0) break;
        missing_mb -= one.memory_mb;
        out.push_back(one.job);
    }
    return out;
}

}  // namespace souk::market
