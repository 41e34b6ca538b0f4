// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/handshake/packets.hpp"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "agentd/handshake/handover.hpp"

namespace souk::handshake {

Status send_packet(int socket, std::string_view packet, int descriptor) {
    iovec part{const_cast<char*>(packet.data()), packet.size()};
    alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (descriptor >= 0) {
        message.msg_control = room;
        message.msg_controllen = sizeof room;
        cmsghdr* const head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
    }
    if (::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        return fail_errno("send a packet", errno);
    return {};
}

Result<std::optional<Packet>> receive_packet(int socket) {
    char bytes[packet_bytes_max];
    iovec part{bytes, sizeof bytes};
    alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = room;
    message.msg_controllen = sizeof room;
    ssize_t n = 0;
    do n = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN) return std::nullopt;
    if (n < 0) return fail_errno("receive a packet", errno);
    Packet packet;
    const cmsghdr* const head = CMSG_FIRSTHDR(&message);
    if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS &&
        head->cmsg_len == CMSG_LEN(sizeof(int))) {
        int descriptor = -1;
        std::memcpy(&descriptor, CMSG_DATA(head), sizeof descriptor);
        packet.descriptor.reset(descriptor);
    }
    if (n == 0) return fail("the other end is gone");
    if ((message.msg_flags & MSG_TRUNC) != 0) return fail("too long a packet");
    packet.bytes.assign(bytes, static_cast<size_t>(n));
    return packet;
}

Result<Fd> sealed_file(std::string_view bytes) {
    Fd file(::memfd_create("souk-handshake", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!file) return fail_errno("memfd_create", errno);
    TRY(write_all(file.get(), bytes, "write an identity"));
    if (::fcntl(file.get(), F_ADD_SEALS,
                F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0)
        return fail_errno("seal an identity", errno);
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
