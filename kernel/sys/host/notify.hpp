// SPDX-License-Identifier: GPL-2.0-or-later
// A daemon tells its service manager these things, if one listens (sd_notify(3)). They succeed if
// none does.
#pragma once

#include <string_view>

#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"
#include "kernel/sys/loop/loop.hpp"

namespace souk {

// The daemon is ready. A line for `systemctl status` may go along.
Status notify_ready(std::string_view status_line = {});
Status notify_stopping();
// A reload begins; notify_ready() ends it.
Status notify_reloading();

// Keeps the service manager's watchdog (WatchdogSec=) from a timer of the loop: a loop that hangs
// does not, and the daemon is started again. Does nothing where none watches. It lives as long as
// the loop runs.
class Watchdog {
  public:
    explicit Watchdog(Loop& loop);
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

  private:
    void keep();

    Loop& loop_;
    Nanos span_;
    Timer timer_;
};

}  // namespace souk
