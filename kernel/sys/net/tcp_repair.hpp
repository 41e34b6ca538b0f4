// SPDX-License-Identifier: GPL-2.0-or-later
// A CRIU that is killed while it holds a job leaves the job's TCP connections in repair mode
// (TCP_REPAIR, tcp(7)), in which they say nothing any more. This ends it.
#pragma once

#include <sys/types.h>

#include <vector>

namespace souk {

// Of all connections of these processes, as numbered here; who has ended meanwhile is passed over.
// Returns how many there were. Needs Linux 5.6 (pidfd_getfd) and root.
int end_tcp_repair(const std::vector<pid_t>& pids);

}  // namespace souk
