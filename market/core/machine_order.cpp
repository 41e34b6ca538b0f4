// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/machine_order.hpp"

#include <utility>

#include "kernel/base/check.hpp"

namespace souk::market {

void MachineOrder::widen(Summary& s, const Entry& e) {
    s.weakest = std::max(s.weakest, e.weakest);
    s.free_mb = std::max(s.free_mb, e.free_mb);
    s.free_cpus = std::max(s.free_cpus, e.free_cpus);
}

void MachineOrder::summarise(size_t b) {
    const Block& block = *blocks_[b];
    const Entry& first = block.entries[0];
    Summary s{first.cls, block.entries[block.n - 1].cls, first.weakest, first.free_mb, first.free_cpus};
    for (uint32_t i = 1; i < block.n; ++i) widen(s, block.entries[i]);
    summaries_[b] = s;
}

void MachineOrder::renumber(size_t from) {
    for (size_t i = from; i < blocks_.size(); ++i) blocks_[i]->position = static_cast<uint32_t>(i);
}

void MachineOrder::split(size_t b) {
    Block& left = *blocks_[b];
    auto right = std::make_unique<Block>();
    const uint32_t keep = left.n / 2;
    right->n = left.n - keep;
    std::copy(left.entries + keep, left.entries + left.n, right->entries);
    left.n = keep;
    for (uint32_t i = 0; i < right->n; ++i) home_[right->entries[i].machine] = right.get();
    blocks_.insert(blocks_.begin() + static_cast<ptrdiff_t>(b) + 1, std::move(right));
    summaries_.insert(summaries_.begin() + static_cast<ptrdiff_t>(b) + 1, Summary{});
    renumber(b + 1);
    summarise(b);
    summarise(b + 1);
}

void MachineOrder::insert(const Entry& entry) {
    if (home_.size() <= entry.machine) home_.resize(entry.machine + 1, nullptr);
    if (blocks_.empty()) {
        blocks_.push_back(std::make_unique<Block>());
        summaries_.emplace_back();
    }
    auto wanted_before = [&](const Entry& e) { return std::pair(e.cls, e.key) < std::pair(entry.cls, entry.key); };
    // The last block that begins before the entry, or the first.
    size_t b = static_cast<size_t>(std::partition_point(blocks_.begin() + 1, blocks_.end(),
                                                        [&](const auto& x) { return wanted_before(x->entries[0]); }) -
                                   blocks_.begin()) -
               1;
    if (blocks_[b]->n == block_max) {
        split(b);
        if (wanted_before(blocks_[b + 1]->entries[0])) ++b;
    }
    Block& block = *blocks_[b];
    Entry* const end = block.entries + block.n;
    Entry* const at = std::partition_point(block.entries, end, wanted_before);
    std::copy_backward(at, end, end + 1);
    *at = entry;
    ++block.n;
    home_[entry.machine] = &block;
    if (block.n == 1) return summarise(b);
    widen(summaries_[b], entry);
    summaries_[b].first = block.entries[0].cls;
    summaries_[b].last = block.entries[block.n - 1].cls;
}

MachineOrder::Entry* MachineOrder::entry_of(uint32_t machine) {
    Block& block = *home_[machine];
    for (uint32_t i = 0; i < block.n; ++i)
        if (block.entries[i].machine == machine) return &block.entries[i];
    MUST(!"the machine is in its block");
}

void MachineOrder::erase(uint32_t machine) {
    Entry* const e = entry_of(machine);
    Block& block = *home_[machine];
    std::copy(e + 1, block.entries + block.n, e);
    --block.n;
    home_[machine] = nullptr;
    const size_t b = block.position;
    if (block.n > 0) return summarise(b);
    blocks_.erase(blocks_.begin() + static_cast<ptrdiff_t>(b));
    summaries_.erase(summaries_.begin() + static_cast<ptrdiff_t>(b));
    renumber(b);
}

void MachineOrder::clear() {
    blocks_.clear();
    summaries_.clear();
    home_.clear();
    closed_ = 0;
}

void MachineOrder::update(uint32_t machine, int32_t free_cpus, int64_t free_mb, const Rank& weakest) {
    Entry& e = *entry_of(machine);
    e.free_cpus = free_cpus;
    e.free_mb = free_mb;
    e.weakest = weakest;
    const uint32_t b = home_[machine]->position;
    widen(summaries_[b], e);
    if (free_cpus > 0) closed_ = std::min<size_t>(closed_, b);
}

}  // namespace souk::market
