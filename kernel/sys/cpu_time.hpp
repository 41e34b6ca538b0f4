// SPDX-License-Identifier: GPL-2.0-or-later
// What a program of ours has used of the CPUs, which does not depend on what else the machine does.
#pragma once

#include <ctime>

#include "kernel/base/time.hpp"

namespace souk {

// CPU time of this process since it began, all threads.
inline Nanos process_cpu_time() {
    timespec t{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return {t.tv_sec * 1'000'000'000 + t.tv_nsec};
}

}  // namespace souk
