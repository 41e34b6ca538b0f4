// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/sim/stopped_jobs.hpp"

#include <algorithm>
#include <tuple>

namespace souk::sim {

StoppedJobs::StoppedJobs(std::span<const SimJob> jobs, std::span<const SimProvider> providers,
                         int64_t disk_mb_per_s)
    : jobs_(jobs),
      providers_(providers),
      disk_mb_per_s_(disk_mb_per_s),
      ones_(jobs.size()),
      standing_(providers.size()),
      placed_mb_(providers.size()),
      standing_mb_(providers.size()) {}

Nanos StoppedJobs::write_of(uint32_t job) const {
    return Nanos::from_s((memory(job) + disk_mb_per_s_ - 1) / disk_mb_per_s_);
}

int64_t StoppedJobs::stops(uint32_t job, uint32_t provider, int64_t now_s) {
    ones_[job] = {now_s, static_cast<int32_t>(provider)};
    standing_[provider].insert(job);
    standing_mb_[provider] += memory(job);
    const Nanos write = write_of(job), patience = record_.patience(write + write);
    if (patience == Nanos::never()) return -1;
    return std::max<int64_t>(0, patience.ns / 1'000'000'000);
}

void StoppedJobs::forget(uint32_t job) {
    One& one = ones_[job];
    if (one.provider < 0) return;
    const auto provider = static_cast<size_t>(one.provider);
    standing_[provider].erase(job);
    standing_mb_[provider] -= memory(job);
    one.provider = -1;
}

void StoppedJobs::wins(uint32_t job, int64_t now_s) {
    forget(job);
    One& one = ones_[job];
    const Nanos write = write_of(job);
    if (one.since_s >= 0) record_.won(Nanos::from_s(now_s - one.since_s), write + write);
    one.since_s = -1;
}

std::vector<uint32_t> StoppedJobs::wanted(uint32_t provider, bool all, int64_t now_s) {
    std::vector<uint32_t> out;
    const auto last = [&](uint32_t a, uint32_t b) {
        return std::tuple(jobs_[a].value, -ones_[a].since_s, a) <
               std::tuple(jobs_[b].value, -ones_[b].since_s, b);
    };
    while (!standing_[provider].empty() && (all || placed_mb_[provider] + standing_mb_[provider] >
                                                       providers_[provider].memory_mb)) {
        const uint32_t job =
            *std::min_element(standing_[provider].begin(), standing_[provider].end(), last);
        record_.wanted(Nanos::from_s(now_s - ones_[job].since_s), write_of(job));
        forget(job);
        ones_[job].since_s = -1;
        out.push_back(job);
    }
    return out;
}

}  // namespace souk::sim
