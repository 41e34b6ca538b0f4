// SPDX-License-Identifier: GPL-2.0-or-later
// The time that groups, the machine, threads of the kernel and the daemon have run, as /proc tells
// it where BPF does not. GroupLoad follows one control group. A LoadProbe owns one for each that it
// counts.
#pragma once

#include <map>
#include <utility>

#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"
#include "kernel/sys/process/cgroup.hpp"

namespace souk {

// Returns what all CPUs have run since the machine started. Interrupts belong to nobody, so they do
// not count.
Result<Nanos> machine_run();
// Returns what threads of the kernel, this process and its children have run, also children that
// have ended.
Nanos system_run();

class GroupLoad {
  public:
    // The time for which its threads have run, and have waited for a CPU since a read first saw
    // them.
    struct Sample {
        Nanos run, wait;
    };

    // The time that the group had run at `start` does not count.
    GroupLoad(Cgroup group, Nanos start) : group_(std::move(group)), start_(start) {}
    // Never less than before.
    Result<Sample> read();

  private:
    Cgroup group_;
    Nanos start_;
    Sample total_;
    std::map<pid_t, int64_t> wait_ns_;  // of each thread, as last seen
};

}  // namespace souk
