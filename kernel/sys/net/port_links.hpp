// SPDX-License-Identifier: GPL-2.0-or-later
// PortLinks: a job's interface as the kernel has it (job_port.hpp), for who may change it, which is
// root: the veth pair, its place in the node's bridge, and what is attached to it. It believes
// nobody which interface that is: it has made it, or the kernel says that both ends are one pair.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "kernel/base/ipv4.hpp"
#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/loop/slow_fd.hpp"
#include "kernel/sys/net/job_port.hpp"
#include "kernel/sys/net/netlink.hpp"
#include "kernel/sys/net/port_work.hpp"

namespace souk {

// These are open in a job's network namespace: a file of the namespace, a netlink socket, a packet
// socket, the setting that ends what is left of connections (JobPort::abandon), the setting that
// says how often TCP tries (JobPort::patient), and raw sockets of IPv4 and IPv6, which send what
// was kept within the job. (A packet socket cannot: the kernel takes what it puts on loopback from
// 127.0.0.1 for forged. Without IPv6 the second raw socket is like the first.)
struct JobInside {
    Fd place, route, packets, orphans, retries, raw4, raw6;
};
// `net_namespace` is a file of the namespace, or a pidfd of a process in it; it must not be the one
// that this process is in. Needs CAP_SYS_ADMIN.
Result<JobInside> open_job_inside(int net_namespace);
// Opens a packet socket in that namespace, or here (-1). The socket takes nothing yet.
Result<Fd> open_packet_socket(int net_namespace = -1);

HardwareAddress job_hardware_address(Ipv4 address);
// Makes a frame that tells all hearers where an address is now (RFC 5227, ARP announcement). Pure.
std::string arp_announcement(const HardwareAddress& hardware, Ipv4 address);
// Tells whether a packet of IP that was kept within a job stays there: it goes to the job's own
// address, or to 127.0.0.0/8 or ::1. Pure.
bool stays_within(std::string_view packet, Ipv4 address);

// The ends of a pair, and whose they are.
struct PortPlace {
    int outer = 0, inner = 0;
    HardwareAddress hardware{};
    Ipv4 address;
};

class PortLinks {
  public:
    // Makes the links in a fresh namespace. shut: its gates, attached and shut before anything
    // passes.
    static Result<PortLinks> make(const JobNetwork& network, const PortPlan& plan,
                                  int net_namespace, std::optional<Armed>& shut);
    static Result<PortLinks> find(const PortPlan& plan, int net_namespace);
    Result<Armed> arm(Gate at_first) const;
    Status act(PortAct what) const;
    // Sends a frame to the job's own loopback.
    void say_within(const std::string& frame) const;
    const PortPlace& place() const { return place_; }
    int net_namespace() const { return inside_place_.get(); }

  private:
    Status enter(const PortPlan& plan, int net_namespace);
    Status build(const JobNetwork& network, const PortPlan& plan, std::optional<Armed>& shut);
    Status make_pair_anew(const std::string& name, uint32_t mtu) const;
    Status look_up(const std::string& name);
    static Status attach(const Netlink& where, int link, int program);
    Status carry_within() const;
    Status attach_within(int program) const;
    Status disarm() const;
    Status announce() const;

    PortPlace place_;
    Netlink outside_, inside_;
    SlowFd speaker_;  // a packet socket inside
    Fd inside_place_, orphans_, retries_, raw4_, raw6_;
};

}  // namespace souk
