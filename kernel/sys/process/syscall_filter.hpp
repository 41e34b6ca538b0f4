// SPDX-License-Identifier: GPL-2.0-or-later
// Makes a seccomp filter of the system calls that the processes of a job cannot make. A filter
// stays with a process and all that it starts, and CRIU dumps and restores it. souk-init sets it
// (job.cpp), just before the job's program begins.
//
// Refused are calls that reach parts of the kernel which an ordinary program never needs, and in
// which faults were found that made root of a user: EPERM, as without a right, or ENOSYS, as on a
// kernel without them, where programs go another way then.
#pragma once

#include <string>

#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {

struct SyscallRules {
    bool io_uring = false;  // allowed
};

// An anonymous file that holds the filter as the kernel takes it (struct sock_filter, one after the
// other); it cannot be changed any more. Error: this machine has no such filters.
Result<Fd> make_syscall_filter(const SyscallRules& rules);
// The calls that each such filter refuses, but for io_uring, which is each node's to allow: for
// checkpoint/criu_filters.c, "ARCHITECTURE.NUMBER.FLAGS ..." in hexadecimal digits, FLAGS being
// bits of the first argument. A job that began under an older version has the filter of that
// version: a call that is new in the list belongs here when no such job is left. Error: this
// machine has no such filters.
Result<std::string> refused_call_words();

}  // namespace souk
