// SPDX-License-Identifier: GPL-2.0-or-later
// CpuWakers: a thread on each CPU that wakes when a BPF program running there says so, and sleeps
// again. It does nothing else: that it wakes has the scheduler choose anew on that CPU, at once and
// not at the next tick. Owned by a LoadProbe.
//
// A program cannot ask the scheduler for that itself, and wakes somebody from within a switch only
// through the kernel's interrupt work, as perf events do: each CPU has one of those.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "kernel/base/result.hpp"
#include "kernel/sys/host/cpu_event.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {

class CpuWakers {
  public:
    // Starts a thread for each of the CPUs 0 to `cpus` - 1. A CPU that is off has none, nor has any
    // CPU from the 1,025th on. `events` is a BPF map of perf events with as many places; the event
    // of a CPU wakes its thread. Fails with the errno of the kernel's answer (EPERM, EACCES: `open`
    // may not; EAGAIN: no more threads).
    static Result<CpuWakers> start(int events, size_t cpus, const OpenCpuEvent& open);
    CpuWakers(CpuWakers&&) noexcept;
    CpuWakers& operator=(CpuWakers&&) noexcept;
    ~CpuWakers();

  private:
    struct Waker;
    CpuWakers();
    Status add(int events, size_t cpu, const OpenCpuEvent& open);
    void stop();

    Fd end_;  // readable when all are to end
    std::vector<std::unique_ptr<Waker>> wakers_;
};

}  // namespace souk
