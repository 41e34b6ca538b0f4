// SPDX-License-Identifier: GPL-2.0-or-later
// Backoff: bounded waiting for what the kernel announces by no event (removal of a v1
// cgroup, say): looks at 50 us, doubling to 5 ms, until the limit. Where there is an event, wait
// for that instead.
#pragma once

#include <algorithm>
#include <ctime>

#include "kernel/base/time.hpp"
#include "kernel/sys/host/clock.hpp"

namespace souk {

class Backoff {
  public:
    // A limit of more than a day is a day.
    explicit Backoff(Nanos wait_max)
        : end_(monotonic_now() + std::min(wait_max, Nanos::from_s(86400))) {}
    // Waits a little; false once the limit has passed.
    bool wait() {
        if (left().ns == 0) return false;
        const timespec pause{0, std::min(step_.ns, left().ns)};
        ::nanosleep(&pause, nullptr);
        step_.ns = std::min<int64_t>(step_.ns * 2, 5'000'000);
        return true;
    }
    Nanos left() const { return std::max(Nanos{0}, end_ - monotonic_now()); }

  private:
    Nanos end_, step_ = Nanos::from_us(50);
};

inline timespec to_timespec(Nanos span) {
    return {span.ns / 1'000'000'000, span.ns % 1'000'000'000};
}

}  // namespace souk
