// SPDX-License-Identifier: GPL-2.0-or-later
// Agent: before this machine is switched off, its guests leave as with `pvdctl market off`; the
// shutdown waits for that, within bounds (kernel/sys/host/shutdown_delay.hpp).
#include "agentd/daemon/agent.hpp"
#include "kernel/sys/host/log.hpp"

namespace souk {

void Agent::watch_shutdown() {
    if (config_.shutdown_wait.ns == 0) return;
    auto delay = ShutdownDelay::open(loop_, "souk " + config_.node, "guests leave this machine",
                                     [this](bool begins) { shutdown_told(begins); });
    if (delay)
        shutdown_ = std::move(*delay);
    else
        log_.debug("a shutdown does not wait for guests", {{"WHY", delay.error()}});
}

void Agent::shutdown_told(bool begins) {
    shutting_down_ = begins;
    shutdown_timer_.cancel();
    log_.notice(begins ? "the machine is being switched off: guests leave"
                       : "the shutdown was called off");
    pace_leaving();
    tell_provider();
    if (!begins) return;
    shutdown_timer_ = loop_.after(config_.shutdown_wait, [this] {
        log_.warning("guests are still here as the machine is switched off");
        shutdown_->release();
    });
    see_empty();
}

// Nothing of a guest of another home is here, nor its image.
bool Agent::is_empty() const { return guests_now().here == 0; }

void Agent::see_empty() {
    if (!shutting_down_ || !shutdown_ || !shutdown_->held()) return;
    if (guests_->machine().here(config_.node).going > 0) return;
    for (const Guest::Left& guest : guests_->machine().left())
        if (!guest.stays) return;
    log_.notice(is_empty() ? "empty: the machine may be switched off"
                           : "no guest runs: the machine may be switched off");
    shutdown_timer_.cancel();
    shutdown_->release();
}

}  // namespace souk
