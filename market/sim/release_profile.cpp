// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/sim/release_profile.hpp"

#include <algorithm>
#include <utility>

#include "kernel/base/check.hpp"

namespace souk::sim {
namespace {
constexpr size_t block_max = 128;
}

// The first block that ends at or after the time, else the last one.
size_t ReleaseProfile::block_for(int64_t time_s) const {
    const auto at = std::partition_point(blocks_.begin(), blocks_.end(), [&](const Block& b) {
        return b.entries.back().time_s < time_s;
    });
    return std::min<size_t>(at - blocks_.begin(), blocks_.size() - 1);
}

void ReleaseProfile::add(int64_t time_s, int64_t procs) {
    if (blocks_.empty()) {
        blocks_.push_back({{{time_s, procs}}, procs});
        return;
    }
    const size_t b = block_for(time_s);
    Block& block = blocks_[b];
    const auto at = std::partition_point(block.entries.begin(), block.entries.end(),
                                         [&](const Entry& e) { return e.time_s < time_s; });
    block.procs += procs;
    if (at != block.entries.end() && at->time_s == time_s) {
        at->procs += procs;
        return;
    }
    block.entries.insert(at, {time_s, procs});
    if (block.entries.size() <= block_max) return;
    Block upper;
    upper.entries.assign(block.entries.begin() + block_max / 2, block.entries.end());
    for (const Entry& e : upper.entries) upper.procs += e.procs;
    block.entries.resize(block_max / 2);
    block.procs -= upper.procs;
    blocks_.insert(blocks_.begin() + static_cast<ptrdiff_t>(b) + 1, std::move(upper));
}

void ReleaseProfile::remove(int64_t time_s, int64_t procs) {
    MUST(!blocks_.empty());
    const size_t b = block_for(time_s);
    Block& block = blocks_[b];
    const auto at = std::partition_point(block.entries.begin(), block.entries.end(),
                                         [&](const Entry& e) { return e.time_s < time_s; });
    MUST(at != block.entries.end() && at->time_s == time_s && at->procs >= procs);
    block.procs -= procs;
    at->procs -= procs;
    if (at->procs > 0) return;
    block.entries.erase(at);
    if (block.entries.empty()) blocks_.erase(blocks_.begin() + static_cast<ptrdiff_t>(b));
}

ReleaseProfile::Release ReleaseProfile::earliest(int64_t free_now, int64_t need) const {
    int64_t free = free_now;
    for (const Block& block : blocks_) {
        if (free + block.procs < need) {
            free += block.procs;
            continue;
        }
        for (const Entry& e : block.entries) {
            free += e.procs;
            if (free >= need) return {e.time_s, free};
        }
    }
    MUST(false && "a job larger than the machine");
    return {};
}

}  // namespace souk::sim
