// SPDX-License-Identifier: GPL-2.0-or-later
// RateLimit: when the next bytes may go, so that no more than so many a second do; of all who share
// it. By virtual scheduling (the generic cell rate algorithm, ITU-T I.371): what has gone takes its
// time at that rate, and nothing goes before it is over. A pause is not made up for by a burst.
// Pure; owned by one thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernel/base/time.hpp"

namespace souk {

class RateLimit {
  public:
    // 0: no limit, at once.
    void set(uint64_t bytes_per_s) {
        rate_ = bytes_per_s;
        if (rate_ == 0) free_at_ = {};
    }
    uint64_t rate() const { return rate_; }
    // Until something may go; 0: now.
    Nanos wait(Nanos now) const { return std::max(free_at_ - now, Nanos{}); }
    // At most 2^33 bytes at once.
    void went(uint64_t bytes, Nanos now) {
        if (rate_ == 0) return;
        const auto took = static_cast<int64_t>(bytes * 1'000'000'000 / rate_);
        free_at_ = std::max(free_at_, now) + Nanos{took};
    }

  private:
    uint64_t rate_ = 0;
    Nanos free_at_{};
};

}  // namespace souk
