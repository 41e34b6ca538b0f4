// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/handshake/packets.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "agentd/handshake/handover.hpp"
#include "kernel/sys/net/descriptors.hpp"

namespace souk::handshake {

Status send_packet(int socket, std::string_view packet, int descriptor) {
    TRY_ASSIGN(const bool sent,
               send_descriptors(socket, packet, {&descriptor, descriptor < 0 ? size_t{0} : 1}));
    return sent ? Status{} : Status(fail_errno("send a packet", EAGAIN));
}

Result<std::optional<Packet>> receive_packet(int socket) {
    char bytes[packet_bytes_max];
    TRY_ASSIGN(auto received, receive_descriptors(socket, bytes));
    if (!received) return std::nullopt;
    if (received->bytes == 0) return fail("the other end is gone");
    if (received->truncated) return fail("too long a packet");
    if (received->descriptors.size() > 1) return fail("a packet with more than one file");
    Packet packet;
    packet.bytes.assign(bytes, received->bytes);
    if (!received->descriptors.empty()) packet.descriptor = std::move(received->descriptors[0]);
    return packet;
}

Result<Fd> sealed_file(std::string_view bytes) {
    TRY_ASSIGN(Fd file, memory_file("souk-handshake", bytes));
    TRY(seal(file.get()));
    return file;
}

Result<std::string> bytes_of(int file, size_t bytes_max) {
    std::string bytes;
    for (;;) {
        const size_t have = bytes.size();
        if (have > bytes_max) return fail("too long a file");
        bytes.resize(have + 64 * 1024);
        const ssize_t n =
            ::pread(file, bytes.data() + have, bytes.size() - have, static_cast<off_t>(have));
        bytes.resize(have + static_cast<size_t>(std::max<ssize_t>(n, 0)));
        if (n < 0) return fail_errno("read a file", errno);
        if (n == 0) return bytes;
    }
}

}  // namespace souk::handshake
