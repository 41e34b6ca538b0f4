// SPDX-License-Identifier: GPL-2.0-or-later
// Reads in /proc which process a pidfd stands for, and in which namespaces a process is.
#pragma once

#include <sys/types.h>

#include "kernel/base/result.hpp"

namespace souk {

// Returns the number of the process here. ESRCH: it has ended, or cannot be seen from here; another
// error: it is no pidfd.
Result<pid_t> pid_of(int pidfd);
// Returns the number of a process's namespace ("pid", "user"). No two namespaces that exist at one
// time have the same. ESRCH: the process has ended.
Result<ino_t> namespace_of(pid_t pid, const char* kind);

// Identifies the file that a process runs, as its file system knows it.
struct ProgramFile {
    dev_t device = 0;
    ino_t inode = 0;
    bool operator==(const ProgramFile&) const = default;
};
// `proc`: a directory of a procfs, whose number `pid` is. Waits for no file system: that of a job's
// program may be one whose server is waiting for the caller. ESRCH: it has ended.
Result<ProgramFile> program_file(int proc, pid_t pid);

}  // namespace souk
