// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/shutdown_guard.hpp"

namespace souk {

void ShutdownGuard::watch() {
    if (config_.shutdown_wait.ns == 0) return;
    auto delay = ShutdownDelay::open(loop_, "souk " + config_.node, "guests leave this machine",
                                     [this](bool begins) { told(begins); });
    if (delay)
        delay_ = std::move(*delay);
    else
        log_.debug("a shutdown does not wait for guests", {{"WHY", delay.error()}});
}

void ShutdownGuard::told(bool begins) {
    begun_ = begins;
    timer_.cancel();
    log_.notice(begins ? "the machine is being switched off: guests leave"
                       : "the shutdown was called off");
    presence_.switch_off(begins);
    if (!begins) return;
    timer_ = loop_.after(config_.shutdown_wait, [this] {
        log_.warning("guests are still here as the machine is switched off");
        delay_->release();
    });
    guests_stepped();
}

void ShutdownGuard::guests_stepped() {
    if (!begun_ || !delay_ || !delay_->held()) return;
    if (guests_.machine().here(config_.node).going > 0) return;
    for (const Guest::Left& guest : guests_.machine().left())
        if (!guest.stays) return;
    log_.notice(presence_.is_empty() ? "empty: the machine may be switched off"
                                     : "no guest runs: the machine may be switched off");
    timer_.cancel();
    delay_->release();
}

}  // namespace souk
