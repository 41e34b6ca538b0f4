// SPDX-License-Identifier: GPL-2.0-or-later
// Opens sockets in another network namespace, for netlink.hpp and port_links.hpp.
#include <fcntl.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "kernel/base/check.hpp"
#include "kernel/sys/net/netlink.hpp"
#include "kernel/sys/net/port_links.hpp"

namespace souk {

Result<Fd> open_route_socket() {
    Fd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    if (!socket) return fail_errno("open a netlink socket", errno);
    return socket;
}

Status in_net_namespace(int net_namespace, const std::function<Status()>& f) {
    TRY_ASSIGN(const Fd own, open_at(AT_FDCWD, "/proc/thread-self/ns/net", O_RDONLY));
    if (::setns(net_namespace, CLONE_NEWNET) != 0)
        return fail_errno("enter a network namespace", errno);
    Status done = f();
    MUST(::setns(own.get(), CLONE_NEWNET) == 0);
    return done;
}

Result<Fd> open_packet_socket(int net_namespace) {
    Fd socket;
    const auto open = [&]() -> Status {
        socket = Fd(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        return socket ? Status{} : Status(fail_errno("open a packet socket", errno));
    };
    TRY(net_namespace < 0 ? open() : in_net_namespace(net_namespace, open));
    return socket;
}

namespace {
Result<Fd> open_place() { return open_at(AT_FDCWD, "/proc/thread-self/ns/net", O_RDONLY); }

bool same_file(const Fd& a, const Fd& b) {
    struct stat one {
    }, other{};
    return ::fstat(a.get(), &one) == 0 && ::fstat(b.get(), &other) == 0 &&
           one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}
}  // namespace

Result<JobInside> open_job_inside(int net_namespace) {
    JobInside inside;
    TRY_ASSIGN(const Fd own, open_place());
    TRY(in_net_namespace(net_namespace, [&]() -> Status {
        TRY_ASSIGN(inside.place, open_place());
        if (same_file(inside.place, own)) return fail("that job has the machine's own network");
        TRY_ASSIGN(inside.route, open_route_socket());
        TRY_ASSIGN(inside.packets, open_packet_socket());
        inside.raw4 = Fd(::socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW));
        if (!inside.raw4) return fail_errno("open a raw socket", errno);
        inside.raw6 = Fd(::socket(AF_INET6, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW));
        if (!inside.raw6 && errno == EAFNOSUPPORT) {
            TRY_ASSIGN(inside.raw6, duplicate(inside.raw4.get()));
        }
        if (!inside.raw6) return fail_errno("open a raw socket", errno);
        // which namespace it is of is settled when it is opened
        TRY_ASSIGN(inside.orphans,
                   open_at(AT_FDCWD, "/proc/sys/net/ipv4/tcp_orphan_retries", O_WRONLY));
        TRY_ASSIGN(inside.retries, open_at(AT_FDCWD, "/proc/sys/net/ipv4/tcp_retries2", O_WRONLY));
        return {};
    }));
    return inside;
}

}  // namespace souk
