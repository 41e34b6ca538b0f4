// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/net/lock_door.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/net/descriptors.hpp"
#include "kernel/sys/store/served_locks.h"

namespace souk {
namespace {

constexpr int door_backlog = 8;

// The name says little of the secret: all users of the machine see it.
socklen_t name_door(uint64_t secret, sockaddr_un& address) {
    address.sun_family = AF_UNIX;
    const auto mixed = static_cast<uint32_t>(secret * 0x9e3779b97f4a7c15U >> 32);
    const int n =
        std::snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "souk-locks-%08x", mixed);
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(n));
}

bool is_root_or(int socket, uint32_t user) {
    ucred who{};
    socklen_t size = sizeof who;
    return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 &&
           (who.uid == 0 || who.uid == user);
}

void wait_at_most(int socket, time_t seconds) {
    const timeval limit{seconds, 0};
    ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

bool send_some(int socket, bool more, const int* descriptors, size_t count) {
    souk_locks_packet packet{};
    packet.what = souk_locks_keep;
    packet.more = more;
    alignas(cmsghdr) char control[CMSG_SPACE(souk_lock_descriptors * sizeof(int))] = {};
    iovec bytes{&packet, sizeof packet};
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    if (count > 0) {
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        cmsghdr* const head = CMSG_FIRSTHDR(&message);
        head->cmsg_len = CMSG_LEN(count * sizeof(int));
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        std::memcpy(CMSG_DATA(head), descriptors, count * sizeof(int));
    }
    return ::sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof packet);
}

}  // namespace

Result<Fd> open_lock_door(uint64_t secret) {
    Fd door(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!door) return fail_errno("socket", errno);
    sockaddr_un address{};
    const socklen_t size = name_door(secret, address);
    if (::bind(door.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        ::listen(door.get(), door_backlog) != 0)
        return fail_errno("open a door to locks", errno);
    return door;
}

void answer_at_lock_door(int door, uint64_t secret, uint32_t user, const int* descriptors,
                         size_t count) {
    const Fd socket(::accept4(door, nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket || !is_root_or(socket.get(), user)) return;
    wait_at_most(socket.get(), 1);
    souk_locks_packet asks{};
    if (::recv(socket.get(), &asks, sizeof asks, 0) != static_cast<ssize_t>(sizeof asks) ||
        asks.what != souk_locks_take || souk_locks_secret(asks.token) != secret)
        return;
    size_t at = 0;
    do {
        const size_t some = std::min<size_t>(count - at, souk_lock_descriptors);
        if (!send_some(socket.get(), at + some < count, descriptors + at, some)) return;
        at += some;
    } while (at < count);
}

std::vector<Fd> take_from_lock_door(uint64_t secret, uint32_t user) {
    std::vector<Fd> all;
    const Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    const socklen_t size = name_door(secret, address);
    if (!socket) return all;
    wait_at_most(socket.get(), 2);
    if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        !is_root_or(socket.get(), user))
        return all;
    souk_locks_packet packet{};
    packet.what = souk_locks_take;
    souk_locks_token_of(secret, packet.token);
    if (::send(socket.get(), &packet, sizeof packet, MSG_NOSIGNAL) !=
        static_cast<ssize_t>(sizeof packet))
        return all;
    // Whoever has the name may be a process of the job's user that sends nothing for ever.
    const Nanos until = monotonic_now() + Nanos::from_s(2);
    do {
        pollfd ready{socket.get(), POLLIN, 0};
        const int64_t left_ms = (until - monotonic_now()).ns / 1'000'000;
        if (left_ms <= 0 || ::poll(&ready, 1, static_cast<int>(left_ms)) != 1) return {};
        auto got =
            receive_descriptors(socket.get(), {reinterpret_cast<char*>(&packet), sizeof packet});
        if (!got || !*got || (*got)->bytes != sizeof packet || (*got)->truncated ||
            packet.what != souk_locks_keep)
            return {};
        if (packet.more != 0 && (*got)->descriptors.empty()) return {};
        std::ranges::move((*got)->descriptors, std::back_inserter(all));
    } while (packet.more != 0 && all.size() <= souk_locks_max);
    return all;
}

}  // namespace souk
