// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/host/cpu_awake.hpp"

#include <unistd.h>

namespace souk {

void CpuAwake::hold(Nanos span) {
    const Nanos until = Loop::now() + span;
    if (fd_ && until <= until_) return;
    if (!fd_) {
        auto file = open_(Device::cpu_latency);
        constexpr int32_t microseconds = 0;
        if (!file || ::write(file->get(), &microseconds, sizeof microseconds) !=
                         ssize_t{sizeof microseconds})
            return;
        fd_ = std::move(*file);
    }
    until_ = until;
    end_ = loop_.after(span, [this] { fd_.reset(); });
}

}  // namespace souk
