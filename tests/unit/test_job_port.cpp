// SPDX-License-Identifier: GPL-2.0-or-later
// The network of jobs with an address of their own, in network namespaces of the test's own process.
#include <arpa/inet.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <cerrno>

#include "kernel/sys/job_port.hpp"
#include "tests/unit/unit.hpp"

namespace souk {
namespace {

START_TEST(addresses_and_ranges_are_read_strictly) {
    ck_assert_text(parse_ipv4("10.79.64.1")->text(), "10.79.64.1");
    ck_assert_uint_eq(parse_ipv4("1.2.3.4")->n, 0x01020304);
    for (const char* bad : {"", "1.2.3", "1.2.3.4.5", "1.2.3.256", "1.2.3.04", "1.2.3.-4", "1.2.3.+4", "1.2.3.4 ", " 1.2.3.4", "a.b.c.d", "1..2.3"})
        ck_assert_msg(!parse_ipv4(bad), "%s", bad);
    const Ipv4Range r = *parse_ipv4_range("10.79.64.0/18");
    ck_assert_uint_eq(r.size(), 16384);
    ck_assert_text(r.text(), "10.79.64.0/18");
    ck_assert(r.contains(*parse_ipv4("10.79.64.0")) && r.contains(*parse_ipv4("10.79.127.255")));
    ck_assert(!r.contains(*parse_ipv4("10.79.63.255")) && !r.contains(*parse_ipv4("10.79.128.0")));
    ck_assert(r.contains(*parse_ipv4_range("10.79.127.192/26")) && !r.contains(*parse_ipv4_range("10.79.0.0/16")));
    for (const char* bad : {"10.79.64.0", "10.79.64.0/", "10.79.64.0/31", "10.79.64.0/7", "10.79.64.1/18", "10.79.64.0/18x", "/18"})
        ck_assert_msg(!parse_ipv4_range(bad), "%s", bad);
}
END_TEST

START_TEST(an_announcement_names_the_address_and_its_hardware_twice) {
    const Ipv4 a = *parse_ipv4("10.79.64.65");
    const HardwareAddress h = job_hardware_address(a);
    ck_assert((h[0] & 3) == 2);  // locally administered, of one machine
    const std::string mac(h.begin(), h.end()), ip("\x0a\x4f\x40\x41", 4), f = arp_announcement(h, a);
    ck_assert_uint_eq(f.size(), 42);
    ck_assert(f.substr(0, 6) == std::string(6, '\xff') && f.substr(6, 6) == mac);
    ck_assert(f.substr(12, 10) == std::string("\x08\x06\x00\x01\x08\x00\x06\x04\x00\x01", 10));
    ck_assert(f.substr(22, 10) == mac + ip && f.substr(38, 4) == ip);
}
END_TEST

// A node's namespace with a bridge, and a job's.
struct Rig {
    Rig() {
        ck_assert(::unshare(CLONE_NEWNET) == 0);
        job = *open_at(AT_FDCWD, "/proc/thread-self/ns/net", O_RDONLY);
        ck_assert(::unshare(CLONE_NEWNET) == 0);
        const auto node = Netlink::open();
        ck_assert(node.has_value());
        NetlinkRequest bridge(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, ifinfomsg{});
        bridge.put(IFLA_IFNAME, network.bridge);
        const size_t info = bridge.open(IFLA_LINKINFO);
        bridge.put(IFLA_INFO_KIND, std::string("bridge"));
        bridge.close(info);
        const Status made = node->ask(std::move(bridge));
        ck_assert_msg(made.has_value(), "%s", made ? "" : made.error().message.c_str());
        const int index = node->link(network.bridge)->index;
        ifaddrmsg head{};
        head.ifa_family = AF_INET;
        head.ifa_prefixlen = 18;
        head.ifa_index = static_cast<uint32_t>(index);
        NetlinkRequest own(RTM_NEWADDR, NLM_F_CREATE, head);
        own.put(IFA_LOCAL, htonl(network.gateway.n));
        ck_assert(node->ask(std::move(own)).has_value());
        ifinfomsg up{};
        up.ifi_index = index;
        up.ifi_flags = up.ifi_change = IFF_UP;
        ck_assert(node->ask(NetlinkRequest(RTM_NEWLINK, 0, up)).has_value());
    }
    JobPort make(bool shut) {
        auto port = JobPort::make(network, address, name, job.get(), shut);
        ck_assert_msg(port.has_value(), "%s", port ? "" : port.error().message.c_str());
        return std::move(*port);
    }
    static Fd udp(Ipv4 at) {
        Fd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        const sockaddr_in a = end(at);
        ck_assert(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0);
        return fd;
    }
    static sockaddr_in end(Ipv4 at) {
        sockaddr_in a{};
        a.sin_family = AF_INET;
        a.sin_port = htons(700);
        a.sin_addr.s_addr = htonl(at.n);
        return a;
    }
    // Whether a datagram comes through. All of it is done before the call that sends returns, but for finding out the
    // hardware address once, which takes an answer.
    static bool passes(const Fd& from, const Fd& to, Ipv4 at, int limit_ms) {
        const sockaddr_in a = end(at);
        ck_assert(::sendto(from.get(), "x", 1, 0, reinterpret_cast<const sockaddr*>(&a), sizeof a) == 1);
        pollfd p{to.get(), POLLIN, 0};
        char byte = 0;
        return ::poll(&p, 1, limit_ms) == 1 && ::recv(to.get(), &byte, 1, 0) == 1;
    }

    JobNetwork network{"bridge", *parse_ipv4_range("10.79.64.0/18"), *parse_ipv4("10.79.64.1")};
    Ipv4 address = *parse_ipv4("10.79.64.70");
    std::string name = "sjtest";
    Fd job;
};

const char* impossible() { return ::geteuid() == 0 ? nullptr : "a test of network interfaces needs root"; }
constexpr int soon_ms = 5'000, never_ms = 50;

START_TEST(gates_stop_frames_one_way_or_both_and_open_again_whoever_finds_them) {
    UNIT_SKIP_IF(impossible());
    Rig rig;
    JobPort port = rig.make(false);
    const Fd node = Rig::udp(rig.network.gateway);
    Fd job;
    ck_assert(in_net_namespace(rig.job.get(), [&]() -> Status { job = Rig::udp(rig.address); return {}; }).has_value());
    const auto in = [&](int limit) { return Rig::passes(node, job, rig.address, limit); };
    const auto out = [&](int limit) { return Rig::passes(job, node, rig.network.gateway, limit); };
    ck_assert(in(soon_ms) && out(soon_ms));
    ck_assert(port.arm().has_value() && in(soon_ms) && out(soon_ms));
    ck_assert(port.shut(FrameWay::to_job).has_value());
    ck_assert(!in(never_ms) && out(soon_ms));
    ck_assert(port.shut(FrameWay::from_job).has_value());
    ck_assert(!in(never_ms) && !out(never_ms));
    ck_assert(port.open().has_value() && in(soon_ms) && out(soon_ms));
    ck_assert(port.disarm().has_value() && in(soon_ms) && out(soon_ms));
    // Its daemon dies with both shut.
    ck_assert(port.arm().has_value() && port.shut(FrameWay::to_job).has_value() && port.shut(FrameWay::from_job).has_value());
    port = *JobPort::find(rig.address, rig.name, rig.job.get());
    ck_assert(!in(never_ms) && !out(never_ms));
    ck_assert(port.open().has_value() && in(soon_ms) && out(soon_ms));
}
END_TEST

START_TEST(a_port_made_shut_is_silent_until_it_is_opened_and_takes_the_place_of_one_left_over) {
    UNIT_SKIP_IF(impossible());
    Rig rig;
    const JobPort left_over = rig.make(true);
    JobPort port = rig.make(true);
    const Fd node = Rig::udp(rig.network.gateway);
    Fd job;
    ck_assert(in_net_namespace(rig.job.get(), [&]() -> Status { job = Rig::udp(rig.address); return {}; }).has_value());
    ck_assert(!Rig::passes(job, node, rig.network.gateway, never_ms));
    ck_assert(port.open().has_value() && Rig::passes(job, node, rig.network.gateway, soon_ms));
    ck_assert(::unshare(CLONE_NEWNET) == 0);  // where there is no bridge
    const auto nowhere = JobPort::make(rig.network, rig.address, rig.name, rig.job.get(), false);
    ck_assert_msg(!nowhere && nowhere.error().message.starts_with("its network interface: bridge: "), "%s",
                  nowhere ? "" : nowhere.error().message.c_str());
}
END_TEST

UNIT_SUITE(job_port, addresses_and_ranges_are_read_strictly, an_announcement_names_the_address_and_its_hardware_twice,
           gates_stop_frames_one_way_or_both_and_open_again_whoever_finds_them,
           a_port_made_shut_is_silent_until_it_is_opened_and_takes_the_place_of_one_left_over);

}  // namespace
}  // namespace souk
