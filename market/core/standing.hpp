// SPDX-License-Identifier: GPL-2.0-or-later
// StandingJobs: suspended jobs that only stop at first, and keep their memory: for how long that is
// worth it, and who goes to disk when the memory is wanted. The market and its simulator
// (market/sim/stopped_jobs.hpp) ask the same one. It knows no nodes: who has its jobs by key says
// what happened, and what room there is. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "kernel/base/money.hpp"
#include "kernel/base/time.hpp"
#include "market/core/stop_record.hpp"

namespace souk::market {

class StandingJobs {
  public:
    // It is suspended, in memory or on disk; `write`: how long a write of its memory takes.
    void suspended(uint64_t job, Nanos now, Nanos write) { jobs_[job] = {now, write}; }
    // So long what is suspended now is worth its memory (StopRecord::patience).
    Nanos patience(Nanos write) const { return record_.patience(write + write); }
    // Its bid has won a place again.
    void won(uint64_t job, Nanos now);
    // Somebody wants the memory in which it stands.
    void wanted(uint64_t job, Nanos now);
    // It has ended, or is not suspended any more by a bid.
    void forget(uint64_t job) { jobs_.erase(job); }
    bool knows(uint64_t job) const { return jobs_.contains(job); }
    Nanos since(uint64_t job) const;  // zero: not known

    // Says which jobs go to disk, so that `missing_mb` more are free: those with the lowest bids
    // first, and of equal ones those that stopped last.
    struct One {
        uint64_t job = 0;
        Money bid;
        Nanos since;
        int64_t memory_mb = 0;
    };
    static std::vector<uint64_t> who_goes(std::vector<One> standing, int64_t missing_mb);

  private:
    struct Case {
        Nanos since, write;
    };
    StopRecord record_;
    std::map<uint64_t, Case> jobs_;
};

}  // namespace souk::market
