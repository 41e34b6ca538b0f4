// SPDX-License-Identifier: GPL-2.0-or-later
// Tells who is on the other end of a unix socket. This is apart from socket.cpp because souk-root,
// which is root, needs nothing else of that file.
#include <sys/socket.h>

#include <cerrno>

#include "kernel/sys/net/socket.hpp"

namespace souk {

Result<PeerCred> peer_cred(int fd) {
    ucred cred{};
    socklen_t bytes = sizeof cred;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &bytes) != 0)
        return fail_errno("SO_PEERCRED", errno);
    if (cred.pid == 0 && cred.uid == static_cast<uid_t>(-1))
        return fail("the peer's identity is not known: no unix socket");
    return PeerCred{cred.pid, cred.uid, cred.gid};
}

std::vector<uint32_t> peer_groups(int fd) {
    std::vector<uint32_t> groups(64);
    for (;;) {
        socklen_t bytes = static_cast<socklen_t>(groups.size() * sizeof(uint32_t));
        if (::getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &bytes) == 0) {
            groups.resize(bytes / sizeof(uint32_t));
            return groups;
        }
        if (errno != ERANGE || bytes / sizeof(uint32_t) <= groups.size()) return {};
        groups.resize(bytes / sizeof(uint32_t));
    }
}

}  // namespace souk
