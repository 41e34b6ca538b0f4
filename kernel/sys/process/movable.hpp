// SPDX-License-Identifier: GPL-2.0-or-later
// Finds what keeps a capsule's processes from being dumped, without a dump, so that a job's user
// hears of it when it happens, not when the job should move. CRIU has the last word; this names
// what CRIU is known to refuse.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/cause.hpp"
#include "kernel/base/move.hpp"
#include "kernel/sys/process/capsule.hpp"
#include "kernel/sys/process/process_files.hpp"
#include "kernel/sys/store/network_files.hpp"

namespace souk {

// Names what an open file is if no dump takes it along (holds_io_uring), from the text of its link
// in /proc/PID/fd; else none. Pure.
CauseCode unmovable_file(std::string_view target);
// Names what a socket is, in the same way, from the kernel's name of its protocol.
CauseCode unmovable_socket(std::string_view protocol);

// The far end, as text, of the socket with that inode in a /proc/net/tcp or tcp6, if it is one of a
// connection that a dump would have to keep: not listening, not over. Else empty. Pure.
std::string tcp_peer(std::string_view table, std::string_view inode);

inline constexpr size_t movable_files_max = 4096;

// Looks at the tree (check_movable), at each process's tracer and at its files, the first
// `files_max` of all; with TcpPolicy::refuse also for TCP connections. `stays`: a directory, as
// this process names it, of which a job may hold nothing, as other nodes have another; empty: none.
// `is_server`: of the type of a file
// system, whether a server gives its locks to others. The error names process and reason. About a
// microsecond a file. `look`: with numbers inside.
Status check_movable(const Capsule& capsule, pid_t root, TcpPolicy tcp,
                     size_t files_max = movable_files_max, std::string_view stays = {},
                     const LookAt& look = {},
                     bool (*is_server)(std::string_view) = is_locked_by_server);

// Checks the same of a process that no capsule holds, and of all its descendants. The error has
// ESRCH if there is none.
Status check_movable_here(pid_t root, TcpPolicy tcp, size_t files_max = movable_files_max);

// Tells whether one of them holds a lock of a file: flock(2), POSIX, or of an open file
// description.
Result<bool> holds_locks(const Capsule& capsule, const std::vector<CapsuleProcess>& processes,
                         const LookAt& look = {});

}  // namespace souk
