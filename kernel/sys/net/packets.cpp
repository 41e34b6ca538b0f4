// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/net/packets.hpp"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/net/descriptors.hpp"

namespace souk {

Status send_packet(int socket, std::string_view packet, int descriptor) {
    TRY_ASSIGN(const bool sent,
               send_descriptors(socket, packet, {&descriptor, descriptor < 0 ? size_t{0} : 1}));
    return sent ? Status{} : Status(fail_errno("send a packet", EAGAIN));
}

Result<std::optional<Packet>> receive_packet(int socket, size_t bytes_max) {
    std::string bytes(bytes_max, '\0');
    auto first = receive_descriptors(socket, bytes);
    // ECONNRESET says that the other end is gone with something of ours unread. It comes before
    // what the other end has said, so we read once more.
    if (!first && first.error().code == ECONNRESET) first = receive_descriptors(socket, bytes);
    TRY_ASSIGN(auto received, std::move(first));
    if (!received) return std::nullopt;
    if (received->bytes == 0) return fail("the other end is gone");
    if (received->truncated) return fail("too long a packet");
    if (received->descriptors.size() > 1) return fail("a packet with more than one file");
    Packet packet;
    bytes.resize(received->bytes);
    packet.bytes = std::move(bytes);
    if (!received->descriptors.empty()) packet.descriptor = std::move(received->descriptors[0]);
    return packet;
}

Result<Packet> wait_for_packet(int socket, size_t bytes_max, Nanos wait_max) {
    const Nanos end = monotonic_now() + wait_max;
    for (;;) {
        pollfd p{socket, POLLIN, 0};
        const int64_t left_ms = (end - monotonic_now()).ns / 1'000'000;
        if (left_ms <= 0) return fail_errno("wait for a packet", ETIMEDOUT);
        if (::poll(&p, 1, static_cast<int>(left_ms)) < 0 && errno != EINTR)
            return fail_errno("poll", errno);
        TRY_ASSIGN(auto packet, receive_packet(socket, bytes_max));
        if (packet) return std::move(*packet);
    }
}

Result<Fd> sealed_file(const char* name, std::string_view bytes) {
    TRY_ASSIGN(Fd file, memory_file(name, bytes));
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

}  // namespace souk
