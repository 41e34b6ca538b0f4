// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/home_delays.hpp"

#include <algorithm>

#include "agentd/core/home_groups.hpp"
#include "kernel/base/wait_status.hpp"

namespace souk {

namespace {

// The clock by which people tell time may be set meanwhile.
constexpr Nanos looks_again = Nanos::from_s(60);

Nanos pause_before(uint32_t attempt) {
    const uint32_t doublings = std::min(attempt - 1, 16U);
    return std::min(Nanos{HomeDelays::pause_least.ns << doublings}, HomeDelays::pause_most);
}

std::string end_in_words(int32_t wait_status, const Trouble& why) {
    if (!why.empty()) return why;
    if (const int32_t signal = ending_signal(wait_status); signal != 0)
        return "signal " + std::to_string(signal) + " ended it";
    return "it exited with " + std::to_string(exit_status(wait_status));
}

}  // namespace

bool HomeDelays::takes(const HomeJob& job, int32_t wait_status, bool lost) {
    const JobTries& t = job.tries;
    if (t.used >= t.most || job.cancelled || job.group.components != 0 || wait_status == 0)
        return false;
    // No node could execute it: it has begun nowhere, or waits after a try.
    if (job.phase == JobPhase::waiting || (job.places.empty() && !lost)) return false;
    if (t.statuses.empty() && !t.signal && !t.node) return true;
    if (lost) return t.node;
    if (ending_signal(wait_status) != 0) return t.signal;
    return std::ranges::find(t.statuses, static_cast<uint32_t>(exit_status(wait_status))) !=
           t.statuses.end();
}

Cause HomeDelays::why(const HomeJob& job, int32_t wait_status, const Trouble& end) {
    const uint32_t next = job.tries.used + 1;
    return because(CauseCode::tried_again,
                   {{"text", end_in_words(wait_status, end)},
                    {"seconds", std::to_string(pause_before(next).ns / 1'000'000'000)},
                    {"try", std::to_string(next)},
                    {"most", std::to_string(job.tries.most)}});
}

Cause HomeDelays::over(const HomeJob& job, int32_t wait_status, const Trouble& why) {
    if (job.tries.used == 0 || job.tries.used < job.tries.most || wait_status == 0 || job.cancelled)
        return {};
    return because(CauseCode::tries_over, {{"most", std::to_string(job.tries.most)},
                                           {"text", end_in_words(wait_status, why)}});
}

void HomeDelays::try_again(HomeJob& job, Nanos now) {
    ++job.tries.used;
    ++job.stats.failed_tries;
    set_variable(job.spec.launch.env, "SOUK_TRY", std::to_string(job.tries.used + 1));
    until_[job.id.seq] = now + pause_before(job.tries.used);
}

void HomeDelays::came(const HomeJob& job, const HomeTurn& turn) {
    if (job.phase != JobPhase::waiting) return;
    if (job.tries.used > 0)
        until_[job.id.seq] = turn.now + pause_before(job.tries.used);
    else if (job.last_epoch.n == 0 && job.group.begin > turn.unix_now)
        until_[job.id.seq] = turn.now + std::min(job.group.begin - turn.unix_now, looks_again);
}

std::string HomeDelays::waits(const HomeJob& job) const {
    if (!until_.contains(job.id.seq)) return {};
    if (job.tries.used == 0) return "the time at which it may begin (srun --begin)";
    return "the pause before retry " + std::to_string(job.tries.used) + " of " +
           std::to_string(job.tries.most) + " to end";
}

Nanos HomeDelays::due(const HomeJob& job) const {
    const auto it = until_.find(job.id.seq);
    return it == until_.end() ? Nanos::never() : it->second;
}

void HomeDelays::look(const HomeJob& job, const HomeTurn& turn) {
    if (due(job) > turn.now) return;
    until_.erase(job.id.seq);
    if (job.tries.used == 0) came(job, turn);
    if (!until_.contains(job.id.seq)) turn.report(job);
}

}  // namespace souk
