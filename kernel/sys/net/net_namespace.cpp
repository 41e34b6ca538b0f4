// SPDX-License-Identifier: GPL-2.0-or-later
// What is opened in another network namespace: netlink.hpp, job_port.hpp.
#include <fcntl.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "kernel/base/check.hpp"
#include "kernel/sys/net/job_port.hpp"
#include "kernel/sys/net/netlink.hpp"

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

Result<JobInside> open_job_inside(int net_namespace) {
    JobInside inside;
    TRY(in_net_namespace(net_namespace, [&]() -> Status {
        TRY_ASSIGN(inside.route, open_route_socket());
        for (Fd* packets : {&inside.packets, &inside.spoken}) {
            *packets = Fd(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
            if (!*packets) return fail_errno("open a packet socket", errno);
        }
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
        return {};
    }));
    return inside;
}

}  // namespace souk
