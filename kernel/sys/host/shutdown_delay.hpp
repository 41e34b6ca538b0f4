// SPDX-License-Identifier: GPL-2.0-or-later
// ShutdownDelay: a lock of logind (systemd's inhibitors, mode "delay") that holds up a shutdown of
// this machine until it is let go; logind itself waits no longer than its InhibitDelayMaxSec.
// Owned by whoever has something to bring to safety first. Without logind there is none, and
// nothing is held up.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/loop/loop.hpp"

struct sd_bus;
struct sd_bus_slot;
struct sd_bus_message;

namespace souk {

class ShutdownDelay {
  public:
    // A shutdown begins (true), or was called off.
    using Told = std::function<void(bool begins)>;
    // Asks for the lock at once; held() says when it is there. Errors: there is no system bus.
    static Result<std::unique_ptr<ShutdownDelay>> open(Loop& loop, std::string who, std::string why,
                                                       Told told);
    ~ShutdownDelay();
    ShutdownDelay(const ShutdownDelay&) = delete;
    ShutdownDelay& operator=(const ShutdownDelay&) = delete;

    bool held() const { return static_cast<bool>(lock_); }
    // The shutdown goes on.
    void release() { lock_ = {}; }
    // Why there is no lock; empty: there is one, or it is on its way.
    const std::string& trouble() const { return trouble_; }

  private:
    ShutdownDelay(Loop& loop, std::string who, std::string why, Told told)
        : loop_(loop), who_(std::move(who)), why_(std::move(why)), told_(std::move(told)) {}
    Status begin();
    Status ask();
    void serve();
    void answered(sd_bus_message* reply);
    void signalled(sd_bus_message* message);

    Loop& loop_;
    const std::string who_, why_;
    Told told_;
    std::string trouble_;
    sd_bus* bus_ = nullptr;
    sd_bus_slot *signal_ = nullptr, *call_ = nullptr;
    Watch watch_;
    Fd lock_;
};

}  // namespace souk
