// SPDX-License-Identifier: GPL-2.0-or-later
// FrameHold: frames that a shut gate (frame_gate.hpp) stops, kept until the job may have them, or
// may say them. So nobody has to send anything again, and datagrams are not lost. Without it TCP
// would be silent for its retransmission time: 200 ms at least, and of a restored connection, which
// knows no round trip, 1 s and then 3 s.
//
// - Of a job that stands still: what the network sends to it, until it is clear where it goes on.
//   Here, then it gets the frames as they came; or elsewhere, then they are sent after it, as a
//   router would, with this node's hardware address as their source, so that no switch takes this
//   node for the one who sent them. If it is frozen, they go into its image, and it gets them when
//   it thaws. That it is elsewhere is heard as everybody does: by the ARP announcement there.
// - Of its copy, until that is told to run: what the network sends to it, and what its connections
//   say. The kernel sends when CRIU restores what waits to be sent, and asks for hardware addresses
//   first, at most once a second.
//
// Reads at an end of the job's interface (port_links.hpp), before the gate. Owned by the
// interface's LocalPort. Poll fd() for reading. What fails: opening. Bounded; the oldest frames go
// first.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/sys/loop/slow_fd.hpp"
#include "kernel/sys/net/port_links.hpp"

namespace souk {

// A frame that leaves the bridge towards the job is one of these.
enum class FrameKind : uint8_t {
    other,  // not for the job
    held,   // to the job, or it asks for its address, or announces the sender's address to all
    moved,  // the job itself says, from elsewhere, that it is there
};
// `frame` is what the wire carries, from the destination's hardware address on. Pure.
FrameKind frame_kind(std::string_view frame, const HardwareAddress& job, Ipv4 address);

// Writes frames as text for a file of an image, and reads them back. Reading ends at the first
// thing that is no frame of such a text. Pure.
std::string encode_frames(const std::deque<std::string>& frames);
std::vector<std::string> decode_frames(std::string_view text);

class FrameHold {
  public:
    // Holds frames before the gate to the job. `bridge` says where to send them if the job is
    // elsewhere; empty: frames that show this are not looked for.
    static Result<FrameHold> open(const PortPlace& port, const std::string& bridge);
    // Holds frames before the gate from the job, by a packet socket inside.
    static Result<FrameHold> open_inside(const PortPlace& port, Fd socket);
    int fd() const { return socket_.get(); }
    // Takes what has come, and sends it on if the job was heard elsewhere, now or before.
    void on_readable();
    // The gate is shut since then, of the wall clock: what came before has passed it. To be called
    // before anything is taken.
    void shut_since(Nanos at) { shut_ = at; }
    // Puts frames before all others, as text() had them: they are the oldest. Only frames to the
    // job come so.
    void put_first(std::vector<std::string> frames);
    // Returns the frame as the wire carries it, with its checksum made.
    static std::string of_wire(const std::string& frame);
    // The job goes on here; its gate is open since `opened`, of the wall clock. What came later has
    // passed it.
    void give_back(Nanos opened);
    size_t held() const { return frames_.size(); }
    // All that has come and is held.
    std::string text();

  private:
    Status read_at(const PortPlace& port, Fd socket, int link);
    void keep(std::string frame);
    void take(std::string frame);
    void read(Nanos until, size_t reads);
    void send_after();
    void give();
    void send(const std::string& frame, int link) const;

    SlowFd socket_;
    int link_ = 0, bridge_ = 0;
    bool inside_ = false;
    HardwareAddress job_{}, node_{};
    Ipv4 address_;
    bool moved_ = false;
    Nanos shut_;
    // each behind its virtio_net_hdr: checksums and segments that are not made yet
    std::deque<std::string> frames_;
    size_t bytes_ = 0;
};

}  // namespace souk
