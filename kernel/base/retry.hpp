// SPDX-License-Identifier: GPL-2.0-or-later
// RetryPause: how long to wait before the next attempt at something that many do at the same time
// (all nodes, when their market was restarted). Doubles from `min` to `max`, and is drawn from the
// upper half of that, so that those who failed together do not come back together ("equal jitter":
// M. Brooker, Exponential Backoff And Jitter, 2015). Pure: the caller brings a seed that differs
// from that of others.
#pragma once

#include <algorithm>

#include "kernel/base/rng.hpp"
#include "kernel/base/time.hpp"

namespace souk {

class RetryPause {
  public:
    RetryPause(Nanos min, Nanos max, uint64_t seed) : min_(min), max_(max), rng_(seed) {}
    // Call it after a failure: returns the span until the next try.
    Nanos next() {
        span_ = std::clamp(Nanos{span_.ns * 2}, min_, max_);
        return {rng_.between(span_.ns / 2, span_.ns)};
    }
    // Call it after a success: the next failure waits briefly again.
    void reset() { span_ = {}; }

  private:
    Nanos min_, max_, span_;
    Rng rng_;
};

}  // namespace souk
