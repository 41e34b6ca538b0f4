// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/host/device.hpp"

#include <fcntl.h>

#include <iterator>

#include "kernel/base/check.hpp"

namespace souk {

Result<Fd> open_device(Device which) {
    struct Known {
        const char* path;
        int flags;
    };
    constexpr Known devices[] = {{"/dev/fuse", O_RDWR},
                                 {"/dev/cpu_dma_latency", O_WRONLY},
                                 {"/proc/pressure/cpu", O_RDWR | O_NONBLOCK},
                                 {"/proc/pressure/memory", O_RDWR | O_NONBLOCK},
                                 {"/proc/pressure/io", O_RDWR | O_NONBLOCK}};
    const auto at = static_cast<size_t>(which) - 1;
    MUST(at < std::size(devices));
    return open_at(AT_FDCWD, devices[at].path, devices[at].flags);
}

}  // namespace souk
