// SPDX-License-Identifier: GPL-2.0-or-later
// Agent: what the owner of this node wants of it. The time frames' edges, the bounds of all guests
// together, and who is still here when they should leave.
#include <algorithm>

#include "agentd/daemon/agent.hpp"
#include "kernel/base/json.hpp"
#include "kernel/sys/host/log.hpp"

namespace souk {
namespace {

// What a restore needs beside the jobs' own memory: CRIU works inside of their groups.
constexpr int64_t restore_room_bytes = 32 << 20;
constexpr Nanos leave_wait_max = Nanos::from_s(25), leave_wait_more = Nanos::from_s(5);

}  // namespace

// When the machine wants to be called next follows from the frames and the clock; what the owner
// says may change it.
void Agent::arm_provider() {
    const int64_t seconds = provider_->next_call(wall_now());
    const Nanos at = seconds > 0 ? Loop::now() + Nanos::from_s(seconds) : Nanos::never();
    provider_timer_.cancel();
    if (at == Nanos::never()) return;
    provider_timer_ = loop_.at(at, [this] {
        provider_step([](Provider& p, provider::Outputs& out) { p.tick(wall_now(), out); });
        arm_provider();
    });
}

// What the owner offers bounds what all guests use in all, by the group above theirs. CPUs at once;
// memory when they hold no more than that: until then the market moves or freezes whom the node has
// no room for, and nobody is killed.
void Agent::apply_bounds() {
    const ProviderRecord& offered = provider_->record();
    const Hardware& all = provider_->machine();
    const int64_t cpus = offered.cpus < all.cpus ? offered.cpus : 0;
    const int64_t memory_mb = offered.memory_mb < all.memory_mb ? offered.memory_mb : 0;
    const auto trouble = [this](const char* what, const Error& e) {
        log_.limited("bounds", Loop::now(), Level::warning, "what guests use in all is not bounded",
                     {{"of", what}, {"WHY", e}});
    };
    if (share_ && share_->has("cpu") && cpus_in_force_ != cpus) {
        const Status set = share_->set_cpus_max(cpus, true);  // a restore is one
        if (set)
            cpus_in_force_ = cpus;
        else if (set.error().code != EINVAL)
            trouble("CPUs", set.error());  // v1: a guest that leaves has more
    }
    if (!jobs_group_ || memory_in_force_mb_ == memory_mb) return;
    const int64_t bytes = memory_mb == 0 ? 0 : (memory_mb << 20) + restore_room_bytes;
    if (bytes == 0) {
        if (const Status lifted = jobs_group_->set_memory_max(0); !lifted)
            return trouble("memory", lifted.error());
    } else {
        const auto set = jobs_group_->lower_memory_max(bytes);
        if (!set) return trouble("memory", set.error());
        if (!*set) return;
    }
    memory_in_force_mb_ = memory_mb;
}

// For the owner: who is here, and whether he still runs.
void Agent::write_guests(JsonWriter& j) const {
    std::map<GuestKey, Guest::Left> left;
    for (Guest::Left& l : guest_.left()) left.emplace(l.key, std::move(l));
    j.begin_array();
    for (const auto& [key, e] : guest_.all()) {
        const auto here = left.find(key);
        const bool frozen = e.job.state == GuestState::frozen && !e.job.kept;
        if (here == left.end() && !frozen) continue;
        const char* const state = frozen ? "frozen" : here->second.stands ? "stopped" : "running";
        j.begin_object()
            .field("job", key.id.text())
            .field("state", state)
            .field("memory_mb", e.job.memory_mb);
        if (!frozen && !here->second.why.empty()) j.field("cannot_move", here->second.why);
        j.end_object();
    }
    j.end_array();
}

void Agent::when_guests_left(std::function<void()> done) {
    const auto it = leave_waits_.insert(leave_waits_.end(), {std::move(done), {}});
    const Nanos limit = std::min(config_.policy.leave + leave_wait_more, leave_wait_max);
    it->limit = loop_.after(limit, [this, it] { end_leave_wait(it); });
    check_left();
}

void Agent::end_leave_wait(std::list<LeaveWait>::iterator it) {
    const auto done = std::move(it->done);
    leave_waits_.erase(it);
    done();
}

void Agent::check_left() {
    if (leave_waits_.empty()) return;
    const auto left = guest_.left();
    if (std::any_of(left.begin(), left.end(), [](const Guest::Left& l) { return !l.stands; }))
        return;
    while (!leave_waits_.empty()) end_leave_wait(leave_waits_.begin());
}

}  // namespace souk
