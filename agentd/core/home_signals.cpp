// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/home_signals.hpp"

#include <utility>

namespace souk {

namespace {

// Its processes are there: the kernel keeps a signal for them until they go on.
bool stands(const HomeJob& job) { return job.phase == JobPhase::frozen && job.in_place; }

}  // namespace

Status HomeSignals::add(const HomeJob& job, int32_t signal) {
    constexpr size_t signals_max = 64;
    if (job.phase != JobPhase::running && job.phase != JobPhase::moving &&
        job.phase != JobPhase::thawing && !stands(job))
        return fail("job " + job.id.text() + " is " + to_string(job.phase) +
                    ": it cannot take a signal now");
    std::vector<int32_t>& signals = jobs_[job.id.seq];
    if (signals.size() >= signals_max)
        return fail("job " + job.id.text() + " moves; too many signals wait for it");
    signals.push_back(signal);
    return {};
}

void HomeSignals::send(const HomeJob& job, const HomeTurn& turn) {
    // While it moves, its source may be dumped already.
    if (job.phase != JobPhase::running && job.step != MoveStep::prepare && !stands(job)) return;
    if (job.phase == JobPhase::thawing) return;
    const auto signals = jobs_.extract(job.id.seq);
    if (!signals) return;
    for (const int32_t signal : signals.mapped()) turn.send_signal(job, signal, false);
}

size_t HomeSignals::waiting(const HomeJob& job) const {
    const auto it = jobs_.find(job.id.seq);
    return it == jobs_.end() ? 0 : it->second.size();
}

}  // namespace souk
