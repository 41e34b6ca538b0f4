// SPDX-License-Identifier: GPL-2.0-or-later
// FrozenMemory: reads the memory of processes that stand frozen, by their pids inside their
// capsule, and leaves it as it is. process_vm_readv(2) pins the pages, for which the kernel first
// makes a copy of what several processes share copy-on-write, or KSM has merged
// (FAULT_FLAG_UNSHARE, from Linux 5.19 on): the job would grow. /proc/PID/mem does not, at half the
// speed. So of a job that may share memory, what no other process maps is read the one way, the
// rest the other.
//
// Owner: whoever takes pages out of a job (PageSource, PageFileWriter). What fails: a process that
// is gone (ESRCH).
#pragma once

#include <map>
#include <vector>

#include "checkpoint/pages.hpp"
#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {

// The ranges that a lazy dump has left out, of all its processes; by pid. Error: the image is
// damaged.
Result<std::vector<PageRange>> lazy_ranges(int image_directory);
// pid inside the innermost namespace -> pid here, of these processes. Those that are gone are left
// out.
std::map<pid_t, pid_t> pids_inside(const std::vector<pid_t>& pids);

class FrozenMemory {
  public:
    // `pids` as of pids_inside. Error: the process of a range is not among them.
    static Result<FrozenMemory> open(const std::vector<PageRange>& ranges,
                                     const std::map<pid_t, pid_t>& pids);
    bool has(pid_t pid) const { return processes_.contains(pid); }
    // All pages of the range into `to`.
    Status read(const PageRange& range, char* to);

  private:
    struct Process {
        pid_t pid = 0;  // here
        bool may_share = false;
        Fd memory;   // /proc/PID/mem, opened when needed
        Fd pagemap;  // the same, if it may share
    };
    static Result<uint64_t> exclusive_pages(Process& process, uint64_t from, uint64_t pages,
                                            bool& exclusive);
    std::map<pid_t, Process> processes_;  // by pid inside
};

}  // namespace souk
