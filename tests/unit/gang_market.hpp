// SPDX-License-Identifier: GPL-2.0-or-later
// Jobs of several components in a World (market_world.hpp), for the tests of gangs in a market.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/unit/market_world.hpp"

namespace souk::market {

constexpr Nanos s(int64_t n) { return Nanos::from_s(n); }

inline std::vector<JobId> gang(World& w, const NodeName& home, int64_t price, uint32_t of,
                               int32_t cpus = 1, Nanos work = Nanos::never(),
                               uint32_t required = UINT32_MAX,
                               const std::function<void(JobReport&)>& with = {}) {
    return w.submit_gang(home, price, of, cpus, work, required, with);
}
inline std::string where(World& w, const std::vector<JobId>& ids) {
    std::string text;
    for (const JobId& id : ids) text += (text.empty() ? "" : " ") + w.where(id);
    return text;
}
inline void three(World& w) {
    w.add_node("n1", 100, 1, 2);
    w.add_node("n2", 90, 1, 2);
    w.add_node("n3", 80, 1, 1);
    w.run_for(s(4));
}
inline std::string why(World& w, const JobId& id) { return w.market->comment(*w.market->find(id)); }

// Submits a gang of `of` components with so many CPUs each. `with` changes the report of each.
inline std::vector<JobId> laid(World& w, uint32_t of, int32_t cpus,
                               const std::function<void(JobReport&)>& with, int64_t price = 40) {
    return gang(w, "n1", price, of, cpus, Nanos::never(), UINT32_MAX, with);
}
inline ReasonCode code(World& w, const JobId& id) {
    return w.market->reason(*w.market->find(id)).code;
}

}  // namespace souk::market
