// SPDX-License-Identifier: GPL-2.0-or-later
// What the kernel says in /proc of whom a pidfd stands for, and in which namespaces he is.
#pragma once

#include <sys/types.h>

#include "kernel/base/result.hpp"

namespace souk {

// His number here. ESRCH: he has ended, or cannot be seen from here; another error: it is no pidfd.
Result<pid_t> pid_of(int pidfd);
// Of the "pid" or "user" namespace of a process, say: no two that are there at one time have the
// same. ESRCH: it has ended.
Result<ino_t> namespace_of(pid_t pid, const char* kind);

// Which file a process runs, as its file system knows it.
struct ProgramFile {
    dev_t device = 0;
    ino_t inode = 0;
    bool operator==(const ProgramFile&) const = default;
};
// `proc`: a directory of a procfs, whose number `pid` is. Waits for no file system: that of a job's
// program may be one whose server is waiting for the caller. ESRCH: it has ended.
Result<ProgramFile> program_file(int proc, pid_t pid);

}  // namespace souk
