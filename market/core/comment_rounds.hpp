// SPDX-License-Identifier: GPL-2.0-or-later
// CommentRounds: what would win a place changes with every bid of others. The comments of jobs that
// wait for one are brought up to date once a second, a bounded number at once, in turn. Pure; part
// of Market.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernel/base/ids.hpp"
#include "kernel/base/time.hpp"

namespace souk::market {

class CommentRounds {
  public:
    void changed() { due_ = true; }
    Nanos next_call() const { return due_ ? at_ + pace : Nanos::never(); }

    // `nodes`: how many there are, as one comment looks at each. `waits(job)`: it has a comment of
    // the kind; `refresh(job)` brings it up to date.
    template <class Jobs, class Waits, class Refresh>
    void refresh(Nanos now, Jobs& jobs, size_t nodes, Waits waits, Refresh refresh) {
        if (!due_ || now < at_ + pace) return;
        const size_t refresh_max = std::clamp<size_t>(looks_max / (nodes + 1), 16, 256);
        at_ = now;
        size_t refreshed = 0;
        auto it = jobs.lower_bound(next_);
        for (size_t scanned = 0; scanned < scan_max && refreshed < refresh_max && it != jobs.end();
             ++scanned, ++it) {
            if (!waits(it->second)) continue;
            refresh(it->second);
            ++refreshed;
        }
        due_ = it != jobs.end();
        next_ = due_ ? it->first : JobId{};
    }

  private:
    static constexpr Nanos pace = Nanos::from_s(1);
    // looks at providers: a few milliseconds
    static constexpr size_t scan_max = 4'096, looks_max = 1 << 18;
    bool due_ = false;
    Nanos at_{INT64_MIN / 2};
    JobId next_;
};

}  // namespace souk::market
