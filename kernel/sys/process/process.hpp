// SPDX-License-Identifier: GPL-2.0-or-later
// Processes by number, as /proc shows them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "kernel/base/result.hpp"
#include "kernel/sys/process/proc_stat.hpp"

namespace souk {

// A process that cannot be mistaken for a later one with the same number; fit to be written down.
struct ProcessId {
    pid_t pid = 0;
    uint64_t start_ticks = 0;  // since boot
    bool operator==(const ProcessId&) const = default;
};
Result<ProcessId> process_id(pid_t pid);

// Reads the stat of `PID`, or of the thread `PID/task/TID`; `proc` is a directory fd of a /proc.
// ENOENT or ESRCH: it is gone.
Result<ProcStat> read_proc_stat(int proc, const std::string& directory);
// Reads the same from the /proc of this process.
Result<ProcStat> read_proc_stat(pid_t pid);

}  // namespace souk
