// SPDX-License-Identifier: GPL-2.0-or-later
// StoppedJobs: which suspended jobs of a simulated market stand in memory, and where. For how long,
// and who goes to disk, is what the market itself says (market/core/standing.hpp). What stands has
// its memory until somebody who has a place there needs it. Pure; jobs and providers by index.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "market/core/standing.hpp"
#include "market/sim/market_files.hpp"

namespace souk::sim {

class StoppedJobs {
  public:
    StoppedJobs(std::span<const SimJob> jobs, std::span<const SimProvider> providers,
                int64_t disk_mb_per_s);

    // The job has a place on the provider, and needs its memory there; or it has none any more.
    void holds(uint32_t job, uint32_t provider) { placed_mb_[provider] += memory(job); }
    void leaves(uint32_t job, uint32_t provider) { placed_mb_[provider] -= memory(job); }
    // The job stands in memory there. Returns after how many seconds it goes to disk; below 0:
    // never.
    int64_t stops(uint32_t job, uint32_t provider, int64_t now_s);
    // The job's bid has won a place again.
    void wins(uint32_t job, int64_t now_s);
    // The job goes to disk, because its time in memory is over.
    void goes_to_disk(uint32_t job) { forget(job); }
    // The jobs that must go to disk, because jobs with places there need their memory; with `all`,
    // because the provider leaves, every job that stands there.
    std::vector<uint32_t> wanted(uint32_t provider, bool all, int64_t now_s);

  private:
    int64_t memory(uint32_t job) const { return jobs_[job].memory_mb; }
    Nanos write_of(uint32_t job) const;
    void forget(uint32_t job);

    std::span<const SimJob> jobs_;
    std::span<const SimProvider> providers_;
    int64_t disk_mb_per_s_;
    market::StandingJobs suspended_;
    std::vector<int32_t> stands_on_;            // by job; below 0: nowhere
    std::vector<std::set<uint32_t>> standing_;  // by provider
    std::vector<int64_t> placed_mb_, standing_mb_;
};

}  // namespace souk::sim
