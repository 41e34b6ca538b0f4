// SPDX-License-Identifier: GPL-2.0-or-later
// Leases (Gray and Cheriton, SOSP 1989) of jobs that run on another node than their home. For a
// lease's length after the last heartbeat of the guest that its home answered, counted from when
// that heartbeat was sent, the job may run; then nothing of it does, whoever is dead or cut off
// there. So the home, which counts from when it answered, knows after a little longer that it
// stands still, and may let it go on elsewhere from a checkpoint. A heartbeat that is answered is
// all that passes.
//
//   guest   0 ... heartbeat sent ... (grace: frozen to disk) | deadline: PID 1 of its capsule stops
//                                                              what still runs
//   home    0 ......... answered .................................... home_waits: it is so for sure
#pragma once

#include <algorithm>

#include "kernel/base/time.hpp"

namespace souk {

// A home may ask for any lease, but not for more heartbeats than that.
constexpr Nanos heartbeat_every(Nanos lease) {
    return std::clamp(Nanos{lease.ns / 8}, Nanos::from_ms(100), Nanos::from_s(60));
}
// Before the deadline: time to freeze the job to disk.
constexpr Nanos lease_grace(Nanos lease) {
    return std::min(Nanos::from_s(30), Nanos{lease.ns / 4});
}
// Two clocks differ by at most one in a thousand (NTP slews by half of that, a free quartz drifts a
// tenth), and whoever lets a job run looks at the deadline at most a second before he does
// (lease_slack).
constexpr Nanos lease_slack = Nanos::from_s(1);
constexpr Nanos home_waits(Nanos lease) {
    return lease + Nanos{lease.ns / 1000} + lease_slack + lease_slack;
}

}  // namespace souk
