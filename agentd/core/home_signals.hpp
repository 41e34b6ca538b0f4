// SPDX-License-Identifier: GPL-2.0-or-later
// HomeSignals: signals for jobs that cannot take them now: a job gets them, in their order, where
// it goes on. Part of Home.
#pragma once

#include <map>
#include <vector>

#include "agentd/core/home_turn.hpp"

namespace souk {

class HomeSignals {
  public:
    // Errors: the job is in no phase that takes signals; too many wait.
    Status add(const HomeJob& job, int32_t signal);
    // To its owner, in their order.
    void send(const HomeJob& job, const HomeTurn& turn);
    size_t waiting(const HomeJob& job) const;
    void forget(uint64_t seq) { jobs_.erase(seq); }

  private:
    std::map<uint64_t, std::vector<int32_t>> jobs_;
};

}  // namespace souk
