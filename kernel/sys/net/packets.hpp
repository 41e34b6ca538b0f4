// SPDX-License-Identifier: GPL-2.0-or-later
// Packets with a descriptor, on a socket of packets. Nothing here waits, but what says so.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "kernel/base/time.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {

// EAGAIN: as many wait as may. `descriptor` below 0: none goes along.
Status send_packet(int socket, std::string_view packet, int descriptor = -1);

struct Packet {
    std::string bytes;
    Fd descriptor;
};
// Returns nothing if there is no packet now. Fails if the other end is gone, or sent a packet that
// is longer.
Result<std::optional<Packet>> receive_packet(int socket, size_t bytes_max);
// The next one, that long at most; ETIMEDOUT after that time.
Result<Packet> wait_for_packet(int socket, size_t bytes_max, Nanos wait_max);

// An anonymous file with these bytes, that cannot be changed any more; and what is in one.
Result<Fd> sealed_file(const char* name, std::string_view bytes);
Result<std::string> bytes_of(int file, size_t bytes_max);

}  // namespace souk
