// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/stop_record.hpp"

#include <algorithm>
#include <vector>

namespace souk::market {

// Looked at anew with each twentieth case, and with each of the first ones.
void StopRecord::add(Case one) {
    cases_.push_back(one);
    if (cases_.size() > kept_max) cases_.pop_front();
    if (cases_.size() < enough || ++since_looked_ * enough < cases_.size()) return;
    since_looked_ = 0;
    best_ = least();
}

Nanos StopRecord::least() const {
    std::vector<Case> all(cases_.begin(), cases_.end());
    // A job that wins in the same moment in which another wants the memory has won.
    std::sort(all.begin(), all.end(), [](const Case& a, const Case& b) {
        return a.after != b.after ? a.after < b.after : a.wanted < b.wanted;
    });
    // If nothing is kept, every job that wins again is on disk by then.
    __int128 cost = 0;
    for (const Case& c : all) cost += c.wanted ? 0 : c.cost.ns;
    __int128 least = cost;
    Nanos best{-1};
    for (size_t i = 0; i < all.size(); ++i) {
        cost += all[i].wanted ? all[i].cost.ns : -all[i].cost.ns;
        const bool last_of_its_time = i + 1 == all.size() || all[i + 1].after > all[i].after;
        if (!last_of_its_time || cost >= least) continue;
        least = cost;
        best = all[i].after;
    }
    // No case speaks against any longer time.
    const bool nobody_after = std::none_of(
        all.begin(), all.end(), [&](const Case& c) { return c.wanted && c.after > best; });
    return nobody_after ? Nanos::never() : best;
}

}  // namespace souk::market
