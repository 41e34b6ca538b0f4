// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/job_order.hpp"

#include "kernel/base/check.hpp"

namespace souk::market {

namespace {
bool before(const JobOrder::Entry& e, const Rank& r) { return e.rank < r; }
}  // namespace

void JobOrder::widen(Summary& s, const Entry& e) {
    s.bound_max = std::max(s.bound_max, e.bound);
    s.memory_min = std::min(s.memory_min, e.memory_mb);
    s.cpus_min = std::min(s.cpus_min, e.cpus);
}

void JobOrder::summarise(size_t b) {
    const Block& block = *blocks_[b];
    const Entry& first = block.entries[0];
    Summary s{block.entries[block.n - 1].rank, first.bound, first.memory_mb, first.cpus};
    for (uint32_t i = 1; i < block.n; ++i) widen(s, block.entries[i]);
    summaries_[b] = s;
}

void JobOrder::renumber(size_t from) {
    for (size_t i = from; i < blocks_.size(); ++i) blocks_[i]->position = static_cast<uint32_t>(i);
}

void JobOrder::split(size_t b) {
    Block& left = *blocks_[b];
    auto right = std::make_unique<Block>();
    const uint32_t keep = left.n / 2;
    right->n = left.n - keep;
    std::copy(left.entries + keep, left.entries + left.n, right->entries);
    left.n = keep;
    for (uint32_t i = 0; i < right->n; ++i) home_[right->entries[i].job] = right.get();
    blocks_.insert(blocks_.begin() + static_cast<ptrdiff_t>(b) + 1, std::move(right));
    summaries_.insert(summaries_.begin() + static_cast<ptrdiff_t>(b) + 1, Summary{});
    renumber(b + 1);
    summarise(b);
    summarise(b + 1);
}

void JobOrder::insert(const Entry& entry) {
    if (home_.size() <= entry.job) home_.resize(entry.job + 1, nullptr);
    if (blocks_.empty()) return rebuild({entry});
    size_t b = std::min(block_after(entry.rank), blocks_.size() - 1);
    if (blocks_[b]->n == block_max) {
        split(b);
        b = std::min(block_after(entry.rank), blocks_.size() - 1);
    }
    Block& block = *blocks_[b];
    Entry* const end = block.entries + block.n;
    Entry* const at = std::lower_bound(block.entries, end, entry.rank, before);
    std::copy_backward(at, end, end + 1);
    *at = entry;
    ++block.n;
    home_[entry.job] = &block;
    widen(summaries_[b], entry);
    summaries_[b].last = block.entries[block.n - 1].rank;
    ++size_;
}

JobOrder::Entry* JobOrder::entry_of(uint32_t job, const Rank& rank) {
    Block& block = *home_[job];
    Entry* const e = std::lower_bound(block.entries, block.entries + block.n, rank, before);
    MUST(e != block.entries + block.n && e->job == job);
    return e;
}

void JobOrder::erase(uint32_t job, const Rank& rank) {
    Entry* const e = entry_of(job, rank);
    Block& block = *home_[job];
    std::copy(e + 1, block.entries + block.n, e);
    --block.n;
    --size_;
    home_[job] = nullptr;
    const size_t b = block.position;
    if (block.n > 0) {
        summaries_[b].last = block.entries[block.n - 1].rank;
        return;
    }
    blocks_.erase(blocks_.begin() + static_cast<ptrdiff_t>(b));
    summaries_.erase(summaries_.begin() + static_cast<ptrdiff_t>(b));
    renumber(b);
}

void JobOrder::set_bound(uint32_t job, const Rank& rank, ClassKey bound) {
    entry_of(job, rank)->bound = bound;
    Summary& s = summaries_[home_[job]->position];
    s.bound_max = std::max(s.bound_max, bound);
}

void JobOrder::rebuild(const std::vector<Entry>& entries) {
    blocks_.clear();
    summaries_.clear();
    size_ = entries.size();
    uint32_t jobs = 0;
    for (const Entry& e : entries) jobs = std::max(jobs, e.job + 1);
    if (home_.size() < jobs) home_.resize(jobs);
    std::fill(home_.begin(), home_.end(), nullptr);
    for (size_t i = 0; i < entries.size();) {
        auto block = std::make_unique_for_overwrite<Block>();
        block->position = static_cast<uint32_t>(blocks_.size());
        block->n = static_cast<uint32_t>(std::min<size_t>(block_fill, entries.size() - i));
        std::copy(entries.begin() + static_cast<ptrdiff_t>(i), entries.begin() + static_cast<ptrdiff_t>(i) + block->n,
                  block->entries);
        for (uint32_t k = 0; k < block->n; ++k) home_[block->entries[k].job] = block.get();
        i += block->n;
        blocks_.push_back(std::move(block));
        summaries_.emplace_back();
        summarise(blocks_.size() - 1);
    }
}

}  // namespace souk::market
