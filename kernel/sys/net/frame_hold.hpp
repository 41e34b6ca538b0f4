// SPDX-License-Identifier: GPL-2.0-or-later
// FrameHold: what the network sends to a job while it stands still, kept until it is clear where
// the job goes on: here, then it gets the frames as they came; or elsewhere, then they are sent
// after it, as a router would, with this node's hardware address as their source, so that no switch
// takes this node for the one who sent them. So nobody has to send anything again, and datagrams
// are not lost. Without it TCP would be silent for its retransmission time, 200 ms at least.
//
// Reads at the outer end of the job's interface (job_port.hpp), before the gate that stops what
// goes on to the job. That the job is elsewhere it hears as everybody does: by the ARP announcement
// there. Owned by whoever stopped the job. Poll fd() for reading. What fails: opening. Bounded; the
// oldest frames go first.
#pragma once

#include <deque>
#include <string>

#include "kernel/sys/loop/slow_fd.hpp"
#include "kernel/sys/net/job_port.hpp"

namespace souk {

// What becomes of a frame that leaves the bridge towards the job.
enum class FrameKind : uint8_t {
    other,  // not for the job alone
    held,   // to the job; also who asks for its address
    moved,  // the job itself says, from elsewhere, that it is there
};
// `frame` is what the wire carries, from its destination's hardware address on. Pure.
FrameKind frame_kind(std::string_view frame, const HardwareAddress& job, Ipv4 address);

class FrameHold {
  public:
    static Result<FrameHold> open(const JobPort& port, const std::string& bridge);
    int fd() const { return socket_.get(); }
    // Takes what has come, and sends it on if the job was heard elsewhere, now or before.
    void on_readable();
    // The job goes on here; its gate is open.
    void give_back();
    size_t held() const { return frames_.size(); }

  private:
    void keep(std::string frame);
    void send(std::string& frame, int link) const;

    SlowFd socket_;
    int port_ = 0, bridge_ = 0;
    HardwareAddress job_{}, node_{};
    Ipv4 address_;
    bool moved_ = false;
    // each behind its virtio_net_hdr: checksums and segments that are not made yet
    std::deque<std::string> frames_;
    size_t bytes_ = 0;
};

}  // namespace souk
