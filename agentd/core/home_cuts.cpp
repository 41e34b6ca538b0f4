// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/home_cuts.hpp"

#include <algorithm>

namespace souk {

HomeCuts::Member* HomeCuts::member(const HomeJob& job) {
    if (job.cut != CutStep::asked) return nullptr;
    Cut* const cut = of_gang(job.group.gang);
    if (!cut) return nullptr;
    const auto it = cut->members.find(job.id.seq);
    return it == cut->members.end() ? nullptr : &it->second;
}

void HomeCuts::leave(const HomeJob& job) {
    if (Cut* const cut = of_gang(job.group.gang)) cut->members.erase(job.id.seq);
}

HomeCuts::Cut HomeCuts::take(uint64_t gang) {
    auto entry = cuts_.extract(gang);
    return entry ? std::move(entry.mapped()) : Cut{};
}

Nanos HomeCuts::due(const HomeJob& job) const {
    const auto waits = go_on_.find(job.id.seq);
    const Nanos goes_on = waits == go_on_.end() ? Nanos::never() : waits->second;
    if (job.cut != CutStep::asked) return goes_on;
    const auto it = cuts_.find(job.group.gang);
    return it == cuts_.end() ? goes_on : std::min(goes_on, it->second.due);
}

}  // namespace souk
