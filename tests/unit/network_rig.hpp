// SPDX-License-Identifier: GPL-2.0-or-later
// A node's network for jobs and a job's own namespace, in namespaces of the test's own process.
#pragma once

#include <arpa/inet.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kernel/sys/net/local_port.hpp"
#include "tests/unit/unit.hpp"

// g++ 12 at -O2 takes the text of an error that is not there for one that is freed.
#pragma GCC diagnostic ignored "-Wfree-nonheap-object"

namespace souk::unit {

// A node's namespace with a bridge, and a job's.
struct NetworkRig {
    NetworkRig() {
        for (Fd* fresh : {&job, &elsewhere, &own}) {
            ck_assert(::unshare(CLONE_NEWNET) == 0);
            *fresh = *open_at(AT_FDCWD, "/proc/thread-self/ns/net", O_RDONLY);
        }
        const auto node = Netlink::open();
        ck_assert(node.has_value());
        NetlinkRequest bridge(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, ifinfomsg{});
        bridge.put(IFLA_IFNAME, network.bridge);
        nlattr* const info = bridge.open(IFLA_LINKINFO);
        bridge.put(IFLA_INFO_KIND, std::string("bridge"));
        bridge.close(info);
        const Status made = node->ask(bridge);
        ck_assert_msg(made.has_value(), "%s", made ? "" : made.error().message.c_str());
        const int index = node->link(network.bridge)->index;
        ifaddrmsg head{};
        head.ifa_family = AF_INET;
        head.ifa_prefixlen = 18;
        head.ifa_index = static_cast<uint32_t>(index);
        NetlinkRequest gateway(RTM_NEWADDR, NLM_F_CREATE, head);
        gateway.put(IFA_LOCAL, htonl(network.gateway.n));
        ck_assert(node->ask(gateway).has_value());
        ifinfomsg up{};
        up.ifi_index = index;
        up.ifi_flags = up.ifi_change = IFF_UP;
        ck_assert(node->ask(NetlinkRequest(RTM_NEWLINK, 0, up)).has_value());
    }
    JobPort make(bool shut) { return open({false, shut, address, name}, job); }
    // One that is there.
    JobPort find() { return open({true, false, address, name}, job); }
    JobPort open(const PortPlan& plan, const Fd& where) {
        auto made = LocalPort::open(network, plan, where.get());
        ck_assert_msg(made.has_value(), "%s", made ? "" : made.error().message.c_str());
        place = made->work->links().place();
        return JobPort(std::move(*made));
    }
    static Fd udp(Ipv4 at) {
        Fd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        const sockaddr_in a = end(at);
        ck_assert(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0);
        return fd;
    }
    Fd udp_inside() const {
        Fd fd;
        ck_assert(in_net_namespace(job.get(), [&]() -> Status {
                      fd = udp(address);
                      return {};
                  }).has_value());
        return fd;
    }
    // The job's own loopback, which a capsule has up.
    void loopback_up() const {
        ifinfomsg up{};
        up.ifi_index = 1;
        up.ifi_flags = up.ifi_change = IFF_UP;
        ck_assert(Netlink::over(std::move(open_job_inside(job.get())->route))
                      ->ask(NetlinkRequest(RTM_NEWLINK, 0, up))
                      .has_value());
    }
    static sockaddr_in end(Ipv4 at) {
        sockaddr_in a{};
        a.sin_family = AF_INET;
        a.sin_port = htons(700);
        a.sin_addr.s_addr = htonl(at.n);
        return a;
    }
    // Whether a datagram comes through. All of it is done before the call that sends returns, but
    // for finding out the hardware address once, which takes an answer.
    static bool passes(const Fd& from, const Fd& to, Ipv4 at, int limit_ms) {
        const sockaddr_in a = end(at);
        ck_assert(
            ::sendto(from.get(), "x", 1, 0, reinterpret_cast<const sockaddr*>(&a), sizeof a) == 1);
        pollfd p{to.get(), POLLIN, 0};
        char byte = 0;
        return ::poll(&p, 1, limit_ms) == 1 && ::recv(to.get(), &byte, 1, 0) == 1;
    }

    JobNetwork network{"bridge", *parse_ipv4_range("10.79.64.0/18"), *parse_ipv4("10.79.64.1")};
    Ipv4 address = *parse_ipv4("10.79.64.70");
    std::string name = "sjtest";
    PortPlace place;         // of the last one
    Fd job, elsewhere, own;  // namespaces; own: the node's, which this process is in
};

inline const char* networks_impossible() {
    return ::geteuid() == 0 ? nullptr : "a test of network interfaces needs root";
}
inline constexpr int soon_ms = 5'000, never_ms = 50;

// A datagram, and what came; '-': nothing in that time.
inline void say(const Fd& from, Ipv4 to, char what) {
    const sockaddr_in a = NetworkRig::end(to);
    ck_assert(::sendto(from.get(), &what, 1, 0, reinterpret_cast<const sockaddr*>(&a), sizeof a) ==
              1);
}
inline char heard(const Fd& at, int limit_ms) {
    pollfd p{at.get(), POLLIN, 0};
    char byte = 0;
    return ::poll(&p, 1, limit_ms) == 1 && ::recv(at.get(), &byte, 1, 0) == 1 ? byte : '-';
}

}  // namespace souk::unit
