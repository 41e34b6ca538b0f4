// SPDX-License-Identifier: GPL-2.0-or-later
// Agent: what the owner of this node wants of it. The time frames' edges, the bounds of all guests
// together, and who is still here when they should leave.
#include <algorithm>

#include "agentd/daemon/agent.hpp"
#include "kernel/base/json.hpp"
#include "kernel/sys/host/log.hpp"

namespace souk {
namespace {

constexpr Nanos leave_wait_max = Nanos::from_s(25), leave_wait_more = Nanos::from_s(5);

}  // namespace

// For the owner: who is here, and whether he still runs.
void Agent::write_guests(JsonWriter& j) const {
    std::map<GuestKey, Guest::Left> left;
    for (Guest::Left& l : guests_->machine().left()) left.emplace(l.key, std::move(l));
    std::map<GuestKey, JobSend> sends;
    for (JobSend& s : guests_->sends()) sends[{s.id, s.epoch}] = std::move(s);
    j.begin_array();
    for (const auto& [key, e] : guests_->machine().all()) {
        const auto here = left.find(key);
        const bool frozen = e.job.state == GuestState::frozen && !e.job.kept;
        if (here == left.end() && !frozen) continue;
        const bool paused = !frozen && !here->second.paused.empty();
        const char* const state = frozen                ? "frozen"
                                  : here->second.stands ? "stopped"
                                  : paused              ? "paused"
                                                        : "running";
        j.begin_object()
            .field("job", key.id.text())
            .field("state", state)
            .field("memory_mb", e.job.memory_mb);
        if (const std::string image = guests_->machine().image_waits(key, config_.node);
            frozen && !image.empty())
            j.field("image", image);
        if (!frozen && !here->second.why.empty()) j.field("cannot_move", here->second.why);
        if (paused) write_cause(j, "why", here->second.paused);
        if (const auto s = sends.find(key); s != sends.end())
            j.field("sent_bytes", s->second.sent_bytes)
                .field("sending_bytes", s->second.total_bytes);
        j.end_object();
    }
    j.end_array();
}

void Agent::when_guests_left(const std::string& job, std::function<void()> done) {
    const auto gone = [this, job] {
        if (job.empty() && guests_->machine().here(config_.node).going > 0) return false;
        const auto left = guests_->machine().left();
        return std::all_of(left.begin(), left.end(), [&](const Guest::Left& l) {
            return job.empty() ? l.stays : l.key.id.text() != job;
        });
    };
    leave_waits_.add(std::min(config_.policy.leave + leave_wait_more, leave_wait_max), gone,
                     std::move(done));
    check_left();
}

void Agent::check_left() {
    if (!leave_waits_.empty()) leave_waits_.look();
}

}  // namespace souk
