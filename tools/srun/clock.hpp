// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <ctime>

#include "kernel/base/time.hpp"

namespace souk::tools {

inline Nanos monotonic_now() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return {now.tv_sec * 1'000'000'000 + now.tv_nsec};
}

}  // namespace souk::tools
