// SPDX-License-Identifier: GPL-2.0-or-later
// Agent: how busy this node and its guests are, second by second.
#include <malloc.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "agentd/daemon/agent.hpp"
#include "kernel/sys/host/clock.hpp"

namespace souk {
namespace {

constexpr Nanos load_period = Nanos::from_s(1);
constexpr Nanos group_kept = Nanos::from_s(10);
constexpr uint64_t trim_ticks = 30;

}  // namespace

void Agent::tick_load() {
    LoadReading reading = load_.read(offer_->provider().record().cpus);
    offer_->step(
        [&](Provider& p, provider::Outputs& out) { p.set_load(reading, Loop::now(), out); });
    home_->free_memory(reading.free_mb);
    presence_->see_load(reading, load_ticks_);
    // Each job when it is new, and then seldomer, at least once a minute, a few of them now.
    guests_->look(load_ticks_);
    use_->tell_sends();
    if (share_) share_->capsules().drop_kept(monotonic_now(), group_kept);
    if (++load_ticks_ % trim_ticks == 0) ::malloc_trim(0);  // what a burst of jobs has left
    load_timer_ = loop_.after(load_period, [this] { tick_load(); });
}

}  // namespace souk
