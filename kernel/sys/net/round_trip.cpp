// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/net/round_trip.hpp"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

namespace souk {

Result<Nanos> round_trip(int socket) {
    tcp_info info{};
    socklen_t bytes = sizeof info;
    if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0)
        return fail_errno("TCP_INFO", errno);
    // An unmeasured one is the greatest number.
    if (info.tcpi_min_rtt == UINT32_MAX || info.tcpi_min_rtt == 0)
        return Nanos{int64_t{info.tcpi_rtt} * 1'000};
    return Nanos{int64_t{info.tcpi_min_rtt} * 1'000};
}

}  // namespace souk
