// SPDX-License-Identifier: GPL-2.0-or-later
// JobPort: the network interface of a job in a network namespace of its own: a veth pair, `eth0`
// inside with the job's address, the other end a port of the node's bridge. The hardware address
// follows from the address, so that both are the same wherever the job goes. Owned by whoever hosts
// the job; it goes with the namespace, which a JobPort keeps alive.
//
// For a move frames are stopped each way by a FrameGate, so that the connections of a frozen job
// stand still, and what is left of it where it was says nothing any more; those between its own
// processes too (FrameWay::within), of which CRIU takes down one end after the other, and a copy's
// first end must not speak to a second that is not there yet: arm() makes that possible, shut()
// does it, open() ends it, disarm() takes the cost of it off again. Once attached, gates stay as
// they are if their daemon ends; who finds the port again opens them.
#pragma once

#include <array>
#include <iterator>
#include <optional>
#include <string>

#include "kernel/base/ipv4.hpp"
#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/loop/slow_fd.hpp"
#include "kernel/sys/net/frame_gate.hpp"
#include "kernel/sys/net/netlink.hpp"

namespace souk {

// What a node offers to jobs.
struct JobNetwork {
    std::string bridge;  // in this daemon's namespace
    Ipv4Range range;     // what is reached through it directly
    Ipv4 gateway;        // of all else; none: nothing else is
};

// What is open in a job's network namespace, for who may not go there: a netlink socket, a packet
// socket, the setting that ends what is left of connections (JobPort::abandon), and another packet
// socket, which reads what a copy says before it may (FrameHold), and raw sockets of IPv4 and IPv6,
// which say what was kept within the job. (What a packet socket puts on loopback from 127.0.0.1 the
// kernel takes for forged. Without IPv6 the second one is like the first.)
struct JobInside {
    Fd route, packets, orphans, spoken, raw4, raw6;
    MakeFrameGate gate = FrameGate::create;  // for who may load no program
};
// `net_namespace`: a file of it, or a pidfd of who is there. Needs CAP_SYS_ADMIN.
Result<JobInside> open_job_inside(int net_namespace);

HardwareAddress job_hardware_address(Ipv4 address);
// Tells whoever hears it where an address is now (RFC 5227, ARP announcement). Pure.
std::string arp_announcement(const HardwareAddress& hardware, Ipv4 address);

class JobPort {
  public:
    // In a fresh namespace. shut: nothing passes to or from the job until open().
    static Result<JobPort> make(const JobNetwork& network, Ipv4 address, const std::string& name,
                                JobInside inside, bool shut);
    // One that is there, its gates in whatever state.
    static Result<JobPort> find(Ipv4 address, const std::string& name, JobInside inside);

    // Its gates are in place, all of them as is said; nothing, if they are.
    Status arm(Gate at_first = Gate::open);
    // arm() first: nobody begins a connection with the job any more, nor its processes with each
    // other; those that are there go on.
    Status begins_nothing();
    // arm() first; within: fails where the kernel has no classifiers (cls_bpf, sch_ingress)
    Status shut(FrameWay way);
    Status open();
    // When that gate was opened last: by the wall clock, read right after it was set.
    Nanos opened(FrameWay way) const { return opened_[static_cast<size_t>(way)]; }
    // What has begun a connection and was stopped within the job, or by begins_nothing(); once.
    std::vector<KeptFrame> take_kept();
    // To the job's own loopback; what the kernel does not take is lost.
    void say_within(const std::string& frame) const;
    Status disarm();
    Status announce() const;
    // Its job is elsewhere now: what is left here of connections that it had closed ends soon, and
    // the namespace with it. Else the kernel would try for minutes to get their last words through
    // a shut gate.
    void abandon() const;
    // The same of who was killed where he was: nothing of it passes from now on if armed. (To take
    // the interface away would do as well. But it waits for whatever the kernel takes down
    // elsewhere, for seconds.)
    void silence();
    // Of the end outside, and of the one inside.
    int index() const { return outer_; }
    int index_inside() const { return inner_; }
    // The socket of JobInside; once.
    Fd take_spoken() { return std::move(spoken_); }
    const HardwareAddress& hardware() const { return hardware_; }
    Ipv4 address() const { return address_; }

  private:
    Status take(JobInside inside);
    Status build(const JobNetwork& network, const std::string& name, bool shut);
    Status look_up(const std::string& name);
    Status attach(const Netlink& where, int link, int program) const;
    Status carry_within() const;
    Status attach_within(int program) const;

    Ipv4 address_;
    HardwareAddress hardware_{};
    Netlink outside_, inside_;
    SlowFd speaker_;  // a packet socket inside
    Fd orphans_, spoken_, raw4_, raw6_;
    int outer_ = 0, inner_ = 0;
    MakeFrameGate make_gate_;
    std::optional<FrameGate> gate_;  // while armed
    std::array<Nanos, std::size(all_ways)> opened_{};
    Status within_;  // whether it stands on loopback too
};

}  // namespace souk
