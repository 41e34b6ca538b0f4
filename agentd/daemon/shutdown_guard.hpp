// SPDX-License-Identifier: GPL-2.0-or-later
// ShutdownGuard: before this machine is switched off, its guests leave as after `pvdctl market
// off`, and the shutdown waits for that within bounds (kernel/sys/host/shutdown_delay.hpp). Owned
// by the Agent.
#pragma once

#include <memory>

#include "agentd/daemon/owner_presence.hpp"
#include "kernel/sys/host/shutdown_delay.hpp"

namespace souk {

class ShutdownGuard {
  public:
    ShutdownGuard(Loop& loop, Log& log, const Config& config, const GuestHost& guests,
                  OwnerPresence& presence)
        : loop_(loop), log_(log), config_(config), guests_(guests), presence_(presence) {}
    // Without a service manager that tells of shutdowns, none waits.
    void watch();
    // Another guest may be here, or none any more.
    void guests_stepped();

  private:
    void told(bool begins);

    Loop& loop_;
    Log& log_;
    const Config& config_;
    const GuestHost& guests_;
    OwnerPresence& presence_;
    std::unique_ptr<ShutdownDelay> delay_;
    bool begun_ = false;
    Timer timer_;
};

}  // namespace souk
