// SPDX-License-Identifier: GPL-2.0-or-later
// HomeExpels: jobs whose node's owner wants them to leave. The market has a while to move such a
// job; then it is to be frozen, and after each freeze that failed the while is twice as long. Part
// of Home, which freezes the job.
#pragma once

#include <map>

#include "agentd/core/home_io.hpp"

namespace souk {

class HomeExpels {
  public:
    explicit HomeExpels(Nanos patience) : patience_(patience) {}

    // The owner of the node where it is wants it to leave. In the middle of a step: when that ends
    // and the job is still there (arm).
    void wanted(const HomeJob& job, Nanos now);
    void arm(const HomeJob& job, Nanos now);
    // It leaves, or stands: nothing is to be done.
    void leaves(const HomeJob& job) { jobs_[job.id.seq].at = Nanos::never(); }
    // If the owner still wants it to leave, the node says so again.
    void forget_wish(const HomeJob& job) { jobs_[job.id.seq].epoch = {}; }
    void freeze_failed(const HomeJob& job) { ++jobs_[job.id.seq].tries; }

    Nanos due(const HomeJob& job) const;
    // To be called when that is due; true: it is to be frozen now.
    bool ripe(const HomeJob& job, Nanos now);
    void forget(uint64_t seq) { jobs_.erase(seq); }

  private:
    struct State {
        Epoch epoch;  // which is to leave
        Nanos at = Nanos::never();
        uint32_t tries = 0;
    };
    Nanos patience_;
    std::map<uint64_t, State> jobs_;
};

}  // namespace souk
