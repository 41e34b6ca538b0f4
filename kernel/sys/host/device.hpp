// SPDX-License-Identifier: GPL-2.0-or-later
// Files of the machine that only root may open, as a daemon of another user has them: somebody who
// may opens them for it. As it begins, they are opened here and now.
#pragma once

#include <cstdint>
#include <functional>

#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {

enum class Device : uint8_t {
    fuse = 1,             // /dev/fuse, for a new mount
    cpu_latency = 2,      // /dev/cpu_dma_latency, to be written to
    cpu_pressure = 3,     // /proc/pressure/cpu, for a trigger
    memory_pressure = 4,  // /proc/pressure/memory, for a trigger
    io_pressure = 5
};
inline constexpr Device device_last = Device::io_pressure;
// ENOENT, EPERM: this machine has it not, or does not let its daemons have it.
Result<Fd> open_device(Device which);
using OpenDevice = std::function<Result<Fd>(Device)>;

}  // namespace souk
