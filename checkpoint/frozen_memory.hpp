// SPDX-License-Identifier: GPL-2.0-or-later
// FrozenMemory: reads the memory of processes that stand frozen, by their pids inside their
// capsule, and leaves it as it is. By /proc/PID/mem, which is opened once by who may: to read by
// process_vm_readv(2) each call needs the right, and pins the pages, for which the kernel first
// makes a copy of what several processes share copy-on-write, or KSM has merged
// (FAULT_FLAG_UNSHARE, from Linux 5.19 on): the job would grow. It is as much as a quarter slower.
//
// Owner: whoever takes pages out of a job (PageSource, PageFileWriter). What fails: a process that
// is gone (ESRCH).
#pragma once

#include <map>
#include <vector>

#include "checkpoint/pages.hpp"
#include "checkpoint/reach.hpp"
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
    // `pids` as of pids_inside. Error: the process of a range is not among them, or has ended.
    static Result<FrozenMemory> open(const std::vector<PageRange>& ranges,
                                     const std::map<pid_t, pid_t>& pids,
                                     const OpenProcessFiles& open = open_process_files);
    bool has(pid_t pid) const { return processes_.contains(pid); }
    // All pages of the range into `to`.
    Status read(const PageRange& range, char* to) const;

  private:
    std::map<pid_t, Fd> processes_;  // by pid inside
};

}  // namespace souk
