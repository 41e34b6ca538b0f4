// SPDX-License-Identifier: GPL-2.0-or-later
// Connections that somebody has begun and the program has not accepted. CRIU leaves them out of an
// image (criu/sk-inet.c, "in-flight"): to who began them they would break when the job goes on.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string_view>

#include "kernel/base/result.hpp"

namespace souk {

struct UnfinishedTcp {
    // These connections wait at listening sockets, or their handshake is not over.
    size_t unaccepted = 0;
    // The first frame of these connections has been sent to this same network namespace, and was
    // not answered: it is on its way still, or a gate has kept it.
    size_t begun_within = 0;
};

// Counts in a table as /proc/PID/net/tcp has it (Linux, Documentation/networking/proc_net_tcp.rst).
// Pure.
UnfinishedTcp unfinished_in(std::string_view table);

// Counts them in the network namespace of that process, over IPv4, and if all is accepted there,
// over IPv6. It fails if the process is gone, or a table has more than 1 MiB (some 6,900
// connections).
Result<UnfinishedTcp> unfinished_of(pid_t pid);

}  // namespace souk
