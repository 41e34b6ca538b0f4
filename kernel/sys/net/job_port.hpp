// SPDX-License-Identifier: GPL-2.0-or-later
// JobPort: the network interface of a job in a network namespace of its own: a veth pair, `eth0`
// inside with the job's address, the other end a port of the node's bridge. The hardware address
// follows from the address, so that both are the same wherever the job goes. Owned by whoever hosts
// the job; it goes with the namespace, which a JobPort keeps alive.
//
// For a move a FrameGate stops frames each way, so that the connections of a frozen job stand
// still, and what is left of the job where it was says nothing any more. It also stops frames
// between the job's own processes (FrameWay::within): CRIU takes down one end of such a connection
// after the other, and a copy's first end must not speak to a second that is not there yet. arm()
// makes that possible, shut() does it, open() ends it, disarm() takes the cost of it off again.
// Once attached, gates stay as they are if their daemon ends; who finds the port again opens them.
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

// A node offers this network to jobs.
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

    // Puts its gates in place, all of them as is said; does nothing if they are in place.
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
    // Returns the frames that began a connection and were stopped within the job, or by
    // begins_nothing(). Each is returned once.
    std::vector<KeptFrame> take_kept();
    Status disarm();
    Status announce() const { return work_->act(PortAct::announce); }
    // The job is elsewhere now. Connections that it had closed end soon here, and the namespace
    // with them. Otherwise the kernel would try for minutes to get their last words through a shut
    // gate.
    void abandon() const { (void)work_->act(PortAct::abandon); }
    // Call this for a job that was killed where it was: its old connections end soon, as with
    // abandon(), and if the port is armed nothing passes from now on. (Taking the interface away
    // would do as well, but it waits for seconds for whatever the kernel takes down elsewhere.)
    void silence();
    // While on, a connection lasts for 8 h at least, instead of a quarter of an hour
    // (tcp_retries2), although the other end does not get what it sends. A gate may stop frames for
    // hours.
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
