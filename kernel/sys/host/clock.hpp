// SPDX-License-Identifier: GPL-2.0-or-later
// The kernel's clocks, in nanoseconds. Loop::now() is the one that runs on while the machine
// sleeps.
#pragma once

#include <ctime>

#include "kernel/base/time.hpp"

namespace souk {

inline Nanos read_clock(clockid_t clock) {
    timespec t{};
    ::clock_gettime(clock, &t);
    return {t.tv_sec * 1'000'000'000 + t.tv_nsec};
}

inline Nanos monotonic_now() { return read_clock(CLOCK_MONOTONIC); }
inline Nanos unix_now() { return read_clock(CLOCK_REALTIME); }
// CPU time of this process since it began, all threads: it does not depend on what else the machine
// does.
inline Nanos process_cpu_time() { return read_clock(CLOCK_PROCESS_CPUTIME_ID); }

}  // namespace souk
