// SPDX-License-Identifier: GPL-2.0-or-later
// FrameGate: three gates for the frames of a job: one for each way of its network interface, one
// for what its own processes send to each other over loopback. Set by one write to a map that
// small programs read (frame_gate.bpf.c: XDP on the interface's ends, a traffic control classifier
// where loopback sends): no lock of the network, no wait for other processors, which is what a
// job's pause can afford. Gates are attached and taken off outside of it (job_port.hpp). Programs
// and map live as long as they are attached, whoever made them.
//
// Who begins a connection would say so again only a second later. So that frame is kept in a queue
// when it is stopped within the job, or by a gate that stops nothing else, until it is asked for.
//
// What CRIU itself sends through loopback passes: it restores a half-closed connection with a
// segment of its own making, marked with criu_mark (CRIU soccr/soccr.h).
//
// A gate may have an end: the job's lease. So it shuts in time also if no daemon is there to do it.
//
// Making one needs CONFIG_BPF_SYSCALL and root. It fails on a kernel that forbids BPF.
#pragma once

#include <array>
#include <iterator>
#include <string>
#include <vector>

#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/net/frame_gate.h"

namespace souk {

enum class FrameWay : uint8_t {
    to_job = FRAME_TO_JOB,
    from_job = FRAME_FROM_JOB,
    within = FRAME_WITHIN
};
inline constexpr FrameWay all_ways[] = {FrameWay::to_job, FrameWay::from_job, FrameWay::within};
enum class Gate : uint8_t {
    open = FRAME_PASSES,
    shut = FRAME_STOPS,
    // Only frames that begin a connection over TCP are stopped.
    begins_nothing = FRAME_BEGINS_NOTHING
};
inline constexpr uint32_t criu_mark = FRAME_CRIU_MARK;

// The frame is as it was on the wire, but for its checksum, which may not be made yet.
struct KeptFrame {
    FrameWay way{};
    std::string frame;
};

class FrameGate {
  public:
    // All open.
    static Result<FrameGate> create();
    // One that another process has made for this one, which need not be root.
    FrameGate(Fd map, Fd kept, std::array<Fd, std::size(all_ways)> programs)
        : map_(std::move(map)), kept_(std::move(kept)), programs_(std::move(programs)) {}
    const Fd& map() const { return map_; }
    const Fd& kept() const { return kept_; }
    Status set(FrameWay way, Gate gate) const;
    // The gates to and from the job let nothing pass from then on (Loop::now), whoever still runs
    // here. never(): they do as they are set. No error of gates that an older version has made:
    // they have no such time.
    Status until(Nanos end) const;
    // Returns each kept frame once, the oldest one first.
    std::vector<KeptFrame> take_kept() const;
    // Returns the program for the interface on which the frames of that way arrive; within: by
    // which they leave.
    int program(FrameWay way) const { return programs_[static_cast<size_t>(way)].get(); }

  private:
    FrameGate() = default;
    Fd map_, kept_;
    std::array<Fd, std::size(all_ways)> programs_;
};

}  // namespace souk
