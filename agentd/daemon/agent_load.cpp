// SPDX-License-Identifier: GPL-2.0-or-later
// Agent: how busy this node and its guests are, second by second.
#include <malloc.h>

#include <algorithm>

#include "agentd/daemon/agent.hpp"
#include "kernel/sys/host/clock.hpp"

namespace souk {
namespace {

constexpr Nanos load_period = Nanos::from_s(1);
constexpr Nanos group_kept = Nanos::from_s(10);
constexpr uint64_t trim_ticks = 30, look_ticks = 60;

}  // namespace

void Agent::tick_load() {
    LoadReading reading = load_.read(provider_->record().cpus);
    provider_step(
        [&](Provider& p, provider::Outputs& out) { p.set_load(reading, Loop::now(), out); });
    apply_bounds();  // what could not be yet
    // Each job when it is new, and then once a minute, a few of them now.
    size_t n = 0;
    for (const auto& [key, c] : cells_)
        if (n++ % look_ticks == load_ticks_ % look_ticks || !c->looked() || c->looks_often())
            c->look();
    if (share_) share_->capsules().drop_kept(monotonic_now(), group_kept);
    if (++load_ticks_ % trim_ticks == 0) ::malloc_trim(0);  // what a burst of jobs has left
    load_timer_ = loop_.after(load_period, [this] { tick_load(); });
}

}  // namespace souk
