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
//
// A gate is set here, by one write to its map. All else needs rights, and is PortWork's.
#pragma once

#include <array>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernel/base/ipv4.hpp"
#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"
#include "kernel/sys/net/frame_gate.hpp"
#include "kernel/sys/net/port_work.hpp"

namespace souk {

// What a node offers to jobs.
struct JobNetwork {
    std::string bridge;  // in this daemon's namespace
    Ipv4Range range;     // what is reached through it directly
    Ipv4 gateway;        // of all else; none: nothing else is
};

class JobPort {
  public:
    explicit JobPort(MadePort made)
        : work_(std::move(made.work)), gate_(), within_(!made.armed || made.armed->within) {
        if (made.armed) gate_ = std::move(made.armed->gate);
    }

    // Its gates are in place, all of them as is said; nothing, if they are.
    Status arm(Gate at_first = Gate::open);
    bool armed() const { return gate_.has_value(); }
    // arm() first: nobody begins a connection with the job any more, nor its processes with each
    // other; those that are there go on.
    Status begins_nothing();
    // arm() first; within: fails where the kernel has no classifiers (cls_bpf, sch_ingress)
    Status shut(FrameWay way);
    Status open();
    // arm() first: from then on (Loop::now) nothing passes to or from the job, whoever still runs
    // here. It stays so when gates are opened; never(): no end.
    Status until(Nanos end);
    // When that gate was opened last: by the wall clock, read right after it was set.
    Nanos opened(FrameWay way) const { return opened_[static_cast<size_t>(way)]; }
    // What has begun a connection and was stopped within the job, or by begins_nothing(); once.
    std::vector<KeptFrame> take_kept();
    Status disarm();
    Status announce() const { return work_->act(PortAct::announce); }
    // Its job is elsewhere now: what is left here of connections that it had closed ends soon, and
    // the namespace with it. Else the kernel would try for minutes to get their last words through
    // a shut gate.
    void abandon() const { (void)work_->act(PortAct::abandon); }
    // The same of who was killed where he was: nothing of it passes from now on if armed. (To take
    // the interface away would do as well. But it waits for whatever the kernel takes down
    // elsewhere, for seconds.)
    void silence();
    // Who does not get what its connections say may not get it for hours: they last for 8 h at
    // least, instead of a quarter of one (tcp_retries2).
    Status patient(bool on) const {
        return work_->act(on ? PortAct::be_patient : PortAct::be_as_always);
    }
    PortWork& work() const { return *work_; }

  private:
    std::unique_ptr<PortWork> work_;
    std::optional<FrameGate> gate_;  // while armed
    bool within_ = true;             // whether it stands on loopback too
    std::array<Nanos, std::size(all_ways)> opened_{};
};

}  // namespace souk
