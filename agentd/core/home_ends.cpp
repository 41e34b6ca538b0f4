// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/home_ends.hpp"

#include <utility>

#include "kernel/base/wait_status.hpp"

namespace souk {

bool HomeEnds::has_time(const HomeJob& job, bool can_run, const HomeTurn& turn) {
    if (job.phase != JobPhase::running || job.spec.grace.ns <= 0 || !can_run) return false;
    State& s = jobs_.try_emplace(job.id.seq, State{turn.now + job.spec.grace}).first->second;
    if (s.until == Nanos::never()) return false;
    if (turn.now >= s.until) {
        s.until = Nanos::never();
        return false;
    }
    if (job.saving.epoch.n > 0 || std::exchange(s.asked, true)) return true;
    turn.tell(job, home::Tell::What::comment, "is asked to end, and has time to");
    turn.send_signal(job, SIGTERM, true);
    turn.send_signal(job, SIGCONT, true);  // one that is stopped would not hear it
    return true;
}

void HomeEnds::hurry(const HomeJob& job, Nanos now) {
    const auto it = jobs_.find(job.id.seq);
    if (it != jobs_.end() && it->second.until != Nanos::never()) it->second.until = now;
}

Nanos HomeEnds::due(const HomeJob& job) const {
    const auto it = jobs_.find(job.id.seq);
    return it == jobs_.end() ? Nanos::never() : it->second.until;
}

}  // namespace souk
