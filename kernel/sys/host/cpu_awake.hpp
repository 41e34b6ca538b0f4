// SPDX-License-Identifier: GPL-2.0-or-later
// CpuAwake: for some milliseconds, idle processors of this machine do not go to sleep (the kernel's
// quality of service for CPU latency, Documentation/power/pm_qos_interface.rst:
// /dev/cpu_dma_latency). A move is dozens of turns between CRIU, the job and the agents, each on
// another processor, and waking that one takes longer than the turn itself: a fifth of a small
// job's pause. It costs the power of processors that spin, so it is asked for a move at a time and
// never for longer than said. The kernel forgets it with its file descriptor, so it does not
// outlive its daemon.
#pragma once

#include "kernel/sys/host/device.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/loop/loop.hpp"

namespace souk {

class CpuAwake {
  public:
    static constexpr const char* device = "/dev/cpu_dma_latency";
    explicit CpuAwake(Loop& loop, OpenDevice open = open_device)
        : loop_(loop), open_(std::move(open)) {}
    // Holds from now for so long; a later end that was asked for before stays. A machine without
    // the device goes on as it was.
    void hold(Nanos span);
    bool holds() const { return static_cast<bool>(fd_); }

  private:
    Loop& loop_;
    const OpenDevice open_;
    Fd fd_;
    Nanos until_;
    Timer end_;
};

}  // namespace souk
