// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/net/descriptors.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace souk {

Result<bool> send_descriptors(int socket, std::string_view bytes,
                              std::span<const int> descriptors) {
    if (descriptors.size() > descriptors_max)
        return fail_errno("send descriptors on a socket", EINVAL);
    iovec part{const_cast<char*>(bytes.data()), bytes.size()};
    alignas(cmsghdr) char room[CMSG_SPACE(descriptors_max * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (!descriptors.empty()) {
        message.msg_control = room;
        message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
        cmsghdr* const head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(descriptors.size_bytes());
        std::memcpy(CMSG_DATA(head), descriptors.data(), descriptors.size_bytes());
    }
    while (::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
        if (errno == EINTR) continue;
        if (errno == EAGAIN) return false;
        return fail_errno("send on a socket", errno);
    }
    return true;
}

Result<std::optional<Received>> receive_descriptors(int socket, std::span<char> room) {
    iovec part{room.data(), room.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(descriptors_max * sizeof(int))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    ssize_t n = 0;
    do n = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN) return std::nullopt;
    if (n < 0) return fail_errno("receive on a socket", errno);
    Received received;
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        int numbers[descriptors_max];
        const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        std::memcpy(numbers, CMSG_DATA(c), count * sizeof(int));
        for (size_t i = 0; i < count; ++i) received.descriptors.emplace_back(numbers[i]);
    }
    received.bytes = static_cast<size_t>(n);
    received.truncated = (message.msg_flags & MSG_TRUNC) != 0;
    return received;
}

}  // namespace souk
