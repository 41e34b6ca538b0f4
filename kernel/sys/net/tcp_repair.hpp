// SPDX-License-Identifier: GPL-2.0-or-later
// A CRIU that is killed while it holds a job leaves the job's TCP connections in repair mode
// (TCP_REPAIR, tcp(7)), in which they say nothing any more. This ends it.
#pragma once

#include <sys/types.h>

#include <functional>
#include <vector>

#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/process/process_files.hpp"

namespace souk {

// Copies the descriptor that a process has under that number.
Result<Fd> take_descriptor(const Pidfd& process, int number);

// Ends TCP repair of one of a process's sockets. Returns whether there was something to end. Needs
// CAP_NET_ADMIN.
Result<bool> end_tcp_repair_of(const Pidfd& process, int number);
// Ends TCP repair of all connections of these processes, and passes over processes that have ended
// meanwhile. Returns how many there were.
using EndTcpRepair = std::function<Result<bool>(const Pidfd&, int number)>;
int end_tcp_repair(const PidsInside& pids, const EndTcpRepair& end = end_tcp_repair_of,
                   const LookAt& look = look_from_here);

}  // namespace souk
