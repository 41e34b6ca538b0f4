// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/home_expels.hpp"

#include <algorithm>
#include <utility>

namespace souk {

void HomeExpels::wanted(const HomeJob& job, Nanos now) {
    State& s = jobs_[job.id.seq];
    if (s.epoch != job.epoch) s.tries = 0;
    s.epoch = job.epoch;
    arm(job, now);
}

void HomeExpels::arm(const HomeJob& job, Nanos now) {
    constexpr Nanos longest = Nanos::from_s(60);
    const auto it = jobs_.find(job.id.seq);
    if (it == jobs_.end()) return;
    State& s = it->second;
    if (s.epoch != job.epoch || s.at != Nanos::never() || job.phase != JobPhase::running) return;
    Nanos wait = patience_;
    for (uint32_t i = 0; i < s.tries && wait < longest; ++i) wait += wait;
    s.at = now + std::min(wait, std::max(patience_, longest));
}

Nanos HomeExpels::due(const HomeJob& job) const {
    const auto it = jobs_.find(job.id.seq);
    return it == jobs_.end() ? Nanos::never() : it->second.at;
}

bool HomeExpels::ripe(const HomeJob& job, Nanos now) {
    const auto it = jobs_.find(job.id.seq);
    if (it == jobs_.end() || it->second.at > now) return false;
    it->second.at = Nanos::never();
    return job.phase == JobPhase::running && it->second.epoch == job.epoch && !job.cancelled;
}

}  // namespace souk
