// SPDX-License-Identifier: GPL-2.0-or-later
// Connections that somebody has begun and the program has not accepted. CRIU leaves them out of an
// image (criu/sk-inet.c, "in-flight"): to who began them they would break when the job goes on.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string_view>

#include "kernel/base/result.hpp"

namespace souk {

// In a table as /proc/PID/net/tcp has it (Linux, Documentation/networking/proc_net_tcp.rst): those
// that wait at listening sockets, and those whose handshake is not over. Pure.
size_t unaccepted_in(std::string_view table);

// In the network namespace of that process, over IPv4, and if there is none, over IPv6. What fails:
// the process is gone; a table of more than 1 MiB (some 6,900 connections).
Result<size_t> unaccepted_of(pid_t pid);

}  // namespace souk
