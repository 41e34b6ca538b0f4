// SPDX-License-Identifier: GPL-2.0-or-later
// Messages on a local socket that bring descriptors along (SCM_RIGHTS). Nothing here waits.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kernel/sys/host/fd.hpp"

namespace souk {

inline constexpr size_t descriptors_max = 24;  // with one message

// One message, and copies of at most descriptors_max descriptors. False: the socket takes nothing
// now (EAGAIN). The error's code is sendmsg(2)'s.
Result<bool> send_descriptors(int socket, std::string_view bytes, std::span<const int> descriptors);

struct Received {
    size_t bytes = 0;        // in `room`; 0: the other end is gone
    bool truncated = false;  // the packet was longer than `room`
    std::vector<Fd> descriptors;
};
// One message into `room`. Nothing: there is none now. The error's code is recvmsg(2)'s.
Result<std::optional<Received>> receive_descriptors(int socket, std::span<char> room);

}  // namespace souk
