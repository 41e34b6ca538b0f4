// SPDX-License-Identifier: GPL-2.0-or-later
// FrameGate: two gates for the frames of a network interface pair, one for each way, shut and opened by one write to a
// map that two small XDP programs read: no lock of the network, no wait for other processors, which is what a job's
// pause can afford. Gates are attached and taken off outside of it (job_port.hpp). Programs and map live as long as
// they are attached, whoever made them.
//
// Needs CONFIG_BPF_SYSCALL and root. What fails: a kernel that forbids BPF.
#pragma once

#include "kernel/base/result.hpp"
#include "kernel/sys/fd.hpp"

namespace souk {

enum class FrameWay : uint8_t { to_job, from_job };

class FrameGate {
  public:
    // Both open.
    static Result<FrameGate> create();
    Status set(FrameWay way, bool shut) const;
    // For the interface on which the frames of that way arrive.
    int program(FrameWay way) const { return programs_[static_cast<size_t>(way)].get(); }

  private:
    Fd map_, programs_[2];
};

}  // namespace souk
