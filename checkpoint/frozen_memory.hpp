// SPDX-License-Identifier: GPL-2.0-or-later
// FrozenMemory: reads the memory of processes that stand frozen, by their pids inside their capsule.
//
// Owner: whoever takes pages out of a job (PageSource, PageFileWriter). What fails: a process that is gone (ESRCH).
#pragma once

#include <map>
#include <vector>

#include "checkpoint/pages.hpp"
#include "kernel/base/result.hpp"
#include "kernel/sys/fd.hpp"

namespace souk {

// The ranges that a lazy dump has left out, of all its processes; by pid. Error: the image is damaged.
Result<std::vector<PageRange>> lazy_ranges(int image_directory);
// pid inside the innermost namespace -> pid here, of these processes. Those that are gone are left out.
std::map<pid_t, pid_t> pids_inside(const std::vector<pid_t>& pids);

class FrozenMemory {
  public:
    // `pids` as of pids_inside. Error: the process of a range is not among them.
    static Result<FrozenMemory> open(const std::vector<PageRange>& ranges, const std::map<pid_t, pid_t>& pids);
    bool has(pid_t pid) const { return processes_.contains(pid); }
    // All pages of the range into `to`.
    Status read(const PageRange& range, char* to);

  private:
    struct Process {
        pid_t pid = 0;  // here
        Fd memory;      // /proc/PID/mem, for what process_vm_readv may not read
    };
    std::map<pid_t, Process> processes_;  // by pid inside
};

}  // namespace souk
