// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/sim/stopped_jobs.hpp"

#include <algorithm>

namespace souk::sim {

StoppedJobs::StoppedJobs(std::span<const SimJob> jobs, std::span<const SimProvider> providers,
                         int64_t disk_mb_per_s)
    : jobs_(jobs),
      providers_(providers),
      disk_mb_per_s_(disk_mb_per_s),
      stands_on_(jobs.size(), -1),
      standing_(providers.size()),
      placed_mb_(providers.size()),
      standing_mb_(providers.size()) {}

Nanos StoppedJobs::write_of(uint32_t job) const {
    return Nanos::from_s((memory(job) + disk_mb_per_s_ - 1) / disk_mb_per_s_);
}

int64_t StoppedJobs::stops(uint32_t job, uint32_t provider, int64_t now_s) {
    stands_on_[job] = static_cast<int32_t>(provider);
    standing_[provider].insert(job);
    standing_mb_[provider] += memory(job);
    suspended_.suspended(job, Nanos::from_s(now_s), write_of(job));
    const Nanos patience = suspended_.patience(write_of(job));
    if (patience == Nanos::never()) return -1;
    return std::max<int64_t>(0, patience.ns / 1'000'000'000);
}

void StoppedJobs::forget(uint32_t job) {
    if (stands_on_[job] < 0) return;
    const auto provider = static_cast<size_t>(std::exchange(stands_on_[job], -1));
    standing_[provider].erase(job);
    standing_mb_[provider] -= memory(job);
}

void StoppedJobs::wins(uint32_t job, int64_t now_s) {
    forget(job);
    suspended_.won(job, Nanos::from_s(now_s));
}

std::vector<uint32_t> StoppedJobs::wanted(uint32_t provider, bool all, int64_t now_s) {
    std::vector<market::StandingJobs::One> ones;
    int64_t missing =
        placed_mb_[provider] + standing_mb_[provider] - providers_[provider].memory_mb;
    if (all) missing = INT64_MAX;
    for (const uint32_t job : missing > 0 ? standing_[provider] : std::set<uint32_t>{})
        ones.push_back({job, jobs_[job].value, suspended_.since(job), memory(job)});
    std::vector<uint32_t> out;
    for (const uint64_t key : market::StandingJobs::who_goes(std::move(ones), missing)) {
        const auto job = static_cast<uint32_t>(key);
        suspended_.wanted(job, Nanos::from_s(now_s));
        forget(job);
        out.push_back(job);
    }
    return out;
}

}  // namespace souk::sim
