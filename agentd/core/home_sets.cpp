// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/home_sets.hpp"

#include <algorithm>
#include <utility>

namespace souk {

bool HomeSets::Set::all(bool Member::*done) const {
    return std::all_of(members.begin(), members.end(),
                       [&](const auto& m) { return m.second.*done; });
}

HomeSets::Member* HomeSets::member(const HomeJob& job) {
    if (job.saving.epoch.n == 0 || job.phase != JobPhase::running) return nullptr;
    Set* const set = of_gang(job.group.gang);
    if (!set) return nullptr;
    const auto it = set->members.find(job.id.seq);
    const bool known = it != set->members.end() && it->second.number == job.saving.epoch;
    return known ? &it->second : nullptr;
}

HomeSets::Set HomeSets::take(uint64_t gang) {
    auto entry = sets_.extract(gang);
    return entry ? std::move(entry.mapped()) : Set{};
}

Nanos HomeSets::due(const HomeJob& job) const {
    const auto it = sets_.find(job.group.gang);
    if (it == sets_.end() || !it->second.members.contains(job.id.seq)) return Nanos::never();
    return it->second.due;
}

}  // namespace souk
