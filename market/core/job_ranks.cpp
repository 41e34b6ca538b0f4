// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/job_ranks.hpp"

#include <algorithm>
#include <utility>

#include "market/core/radix_sort.hpp"

namespace souk::market {

Rank JobRanks::rank_of(const Occupancy& all, uint32_t j) const {
    const Occupancy::Job& job = all.jobs()[j];
    if (assigned_) return {INT64_MAX, job.rank.second, job.rank.key};
    return Rank::of(job.value, job.arrival(), job.key(), weight_of(all, j));
}

void JobRanks::weigh(Occupancy& all, uint32_t j, int32_t weight) {
    int32_t& now = all.details(j).weight;
    weighed_ -= now != weight_plain;
    now = weight;
    weighed_ += weight != weight_plain;
}

JobOrder::Entry JobRanks::entry_of(const Occupancy& all, uint32_t j) {
    const Occupancy::Job& job = all.jobs()[j];
    return {job.rank, job.bound, job.memory_mb, j, job.cpus};
}

void JobRanks::enter(Occupancy& all, uint32_t j) {
    Occupancy::Job& job = all.job(j);
    job.competing = job.staged = true;
    competing_with_bars_ += job.bars;
    if (job.files) natives_[all.details(j).files->traffic.home.n].insert({job.rank, j});
    if (job.named) all.want_licences(j, true);
    staged_.push_back(j);
}

void JobRanks::leave(Occupancy& all, uint32_t j) {
    Occupancy::Job& job = all.job(j);
    if (!job.competing) return;
    if (job.staged) flush(all);
    order_.erase(job.rank);
    job.competing = false;
    competing_with_bars_ -= job.bars;
    if (job.named) all.want_licences(j, false);
    if (!job.files) return;
    const auto natives = natives_.find(all.details(j).files->traffic.home.n);
    natives->second.erase({job.rank, j});
    if (natives->second.empty()) natives_.erase(natives);
}

void JobRanks::flush(Occupancy& all) {
    if (staged_.size() > 64 && staged_.size() * 8 > order_.size()) return merge_staged(all);
    for (const uint32_t j : staged_) {
        all.job(j).staged = false;
        order_.insert(entry_of(all, j));
    }
    staged_.clear();
}

// Many are sorted first, and the order is made anew.
void JobRanks::merge_staged(Occupancy& all) {
    const Chunks<Occupancy::Job>& jobs = all.jobs();
    radix_sort(
        staged_, [&](uint32_t j) { return jobs[j].rank.first; },
        [&](uint32_t a, uint32_t b) { return jobs[a].rank < jobs[b].rank; });
    JobOrder merged;
    size_t next = 0;
    auto append_next = [&] {
        if (next + 16 < staged_.size()) __builtin_prefetch(&all.job(staged_[next + 16]), 1);
        const uint32_t j = staged_[next++];
        all.job(j).staged = false;
        merged.append(entry_of(all, j));
    };
    order_.each([&](const JobOrder::Entry& e) {
        while (next < staged_.size() && jobs[staged_[next]].rank < e.rank) append_next();
        merged.append(e);
        return true;
    });
    while (next < staged_.size()) append_next();
    order_ = std::move(merged);
    staged_.clear();
}

const std::set<JobRanks::Native>* JobRanks::natives_of(ProviderKey provider) const {
    const auto natives = natives_.find(provider.n);
    return natives == natives_.end() ? nullptr : &natives->second;
}

void JobRanks::rebuild(Occupancy& all, const std::vector<uint32_t>& jobs) {
    all.rerank();
    order_ = {};
    natives_.clear();
    for (const uint32_t j : jobs) {
        const Occupancy::Job& job = all.jobs()[j];
        if (job.named) all.want_licences(j, true);
        order_.append(entry_of(all, j));
        if (job.files) natives_[all.details(j).files->traffic.home.n].insert({job.rank, j});
    }
}

void JobRanks::assign(Occupancy& all, const std::vector<uint32_t>& jobs) {
    flush(all);
    assigned_ = true;
    int64_t turn = 0;
    for (const uint32_t j : jobs) all.job(j).rank.first = turn++;
    rebuild(all, jobs);
}

bool JobRanks::rank_by_value(Occupancy& all, bool weights) {
    const bool weighs_anew = weights != weights_ && weighed_ > 0;
    weights_ = weights;
    if (!assigned_ && !weighs_anew) return false;
    flush(all);
    assigned_ = false;
    std::vector<uint32_t> competing;
    order_.each([&](const JobOrder::Entry& e) {
        competing.push_back(e.job);
        return true;
    });
    for (uint32_t j = 0; j < all.jobs().size(); ++j)
        if (all.jobs()[j].key().n != 0) all.job(j).rank = rank_of(all, j);
    std::sort(competing.begin(), competing.end(),
              [&](uint32_t a, uint32_t b) { return all.jobs()[a].rank < all.jobs()[b].rank; });
    rebuild(all, competing);
    return true;
}

}  // namespace souk::market
