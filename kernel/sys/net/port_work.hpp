// SPDX-License-Identifier: GPL-2.0-or-later
// PortWork: what needs rights to the machine's network of a job's interface (job_port.hpp), so that
// who uses one need not have them (agentd/root). LocalPort does it here and now, as root.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernel/base/ipv4.hpp"
#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"
#include "kernel/sys/net/frame_gate.hpp"

namespace souk {

// Gates that are attached. within: on loopback too, which not every kernel can.
struct Armed {
    FrameGate gate;
    bool within = true;
};
enum class PortAct : uint8_t {
    disarm = 1,
    abandon = 2,
    announce = 3,
    be_patient = 4,
    be_as_always = 5
};

// This decides what becomes of the held frames: whether the job gets those that were sent to it,
// and when its gates were opened, by the wall clock. Frames that came later have passed the gates.
struct FrameRelease {
    bool gives = false;
    Nanos heard, spoke;
    bool operator==(const FrameRelease&) const = default;
};

// The work ends with the object: held frames are lost then, and the namespace goes if nobody is
// there.
class PortWork {
  public:
    virtual ~PortWork() = default;
    virtual Result<Armed> arm(Gate at_first) = 0;
    virtual Status act(PortAct what) = 0;
    // Keeps the frames of that way from now on (frame_hold.hpp). `follows`, to_job: they are sent
    // after a job that is heard elsewhere, and are not looked at before feed() says from when on.
    virtual Status hold(FrameWay way, bool follows) = 0;
    // Frames to the job that came before `since`, of the wall clock, have passed the gate; `frames`
    // are older than all that come, and are as FrameHold has them.
    virtual Status feed(Nanos since, const std::vector<std::string>& frames) = 0;
    // Returns the frames to the job that have come until now, as text.
    virtual Result<std::string> held() = 0;
    // The job's gates are open: held frames go on, behind the word of where the job is, and no more
    // are held.
    virtual Status release(const FrameRelease& how) = 0;
    // Sends frames to the job (as FrameHold has them), or to its own loopback (within; as they were
    // on the wire). Frames that the kernel does not take are lost.
    virtual Status say(FrameWay way, const std::vector<std::string>& frames) = 0;
};

// A new interface, its gates shut or none; or one that is there.
struct PortPlan {
    bool found = false, shut = false;
    Ipv4 address;
    std::string name;  // of the end outside
    bool operator==(const PortPlan&) const = default;
};
struct MadePort {
    std::unique_ptr<PortWork> work;
    std::optional<Armed> armed;  // made shut
};

}  // namespace souk
