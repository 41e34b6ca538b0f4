// SPDX-License-Identifier: GPL-2.0-or-later
// RankedProcs: some ranks with the processors that each needs or holds, ascending. Two of them carry the replay of
// greedy migration: who waits and who runs. Flat blocks of 32, so that the dozens of jobs that are usually about cost a
// few cache lines, and thousands cost one pass over the blocks' summaries. Ranks are 0 to INT32_MAX - 1.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernel/base/check.hpp"

namespace souk::sim {

class RankedProcs {
  public:
    static constexpr int32_t none = INT32_MAX;

    bool empty() const { return blocks_.empty(); }

    // The rank is not in it.
    void add(int32_t rank, int32_t procs) {
        if (blocks_.empty()) {
            blocks_.emplace_back();
            greatest_.push_back(rank);
        }
        size_t b = std::min(block_of(rank), blocks_.size() - 1);
        if (blocks_[b].size == width) {
            split(b);
            b += greatest_[b] < rank;
        }
        Block& block = blocks_[b];
        const int at = block.position(rank);
        std::memmove(&block.ranks[at + 1], &block.ranks[at], sizeof(int32_t) * static_cast<size_t>(block.size - at));
        std::memmove(&block.procs[at + 1], &block.procs[at], sizeof(int32_t) * static_cast<size_t>(block.size - at));
        block.ranks[at] = rank;
        block.procs[at] = procs;
        ++block.size;
        block.sum += procs;
        block.least = std::min(block.least, procs);
        greatest_[b] = block.ranks[block.size - 1];
    }

    // The rank is in it.
    void remove(int32_t rank) {
        const size_t b = block_of(rank);
        MUST(b < blocks_.size());
        Block& block = blocks_[b];
        const int at = block.position(rank);
        MUST(block.ranks[at] == rank);
        const int32_t procs = block.procs[at];
        if (block.size == 1) {
            blocks_.erase(blocks_.begin() + static_cast<ptrdiff_t>(b));
            greatest_.erase(greatest_.begin() + static_cast<ptrdiff_t>(b));
            return;
        }
        // The entries behind move up, and an unused one (rank and processors `none`) with them.
        --block.size;
        const auto behind = sizeof(int32_t) * static_cast<size_t>(block.size - at);
        std::memmove(&block.ranks[at], &block.ranks[at + 1], behind);
        std::memmove(&block.procs[at], &block.procs[at + 1], behind);
        block.ranks[block.size] = block.procs[block.size] = none;
        block.sum -= procs;
        if (procs == block.least) block.least = *std::min_element(block.procs, block.procs + block.size);
        greatest_[b] = block.ranks[block.size - 1];
    }

    bool has(int32_t rank) const {
        const size_t b = block_of(rank);
        return b < blocks_.size() && blocks_[b].ranks[blocks_[b].position(rank)] == rank;
    }

    // The first rank at or after `from` with at most `procs`; none if there is none.
    int32_t first(int32_t from, int64_t procs) const {
        for (size_t b = block_of(from); b < blocks_.size(); ++b) {
            const Block& block = blocks_[b];
            if (block.least > procs) continue;
            for (int i = block.position(from); i < block.size; ++i)
                if (block.procs[i] <= procs) return block.ranks[i];
        }
        return none;
    }

    // The processors of all ranks before this one.
    int64_t procs_before(int32_t rank) const {
        int64_t sum = 0;
        for (size_t b = 0; b < blocks_.size(); ++b) {
            if (greatest_[b] >= rank) return sum + blocks_[b].sum_before(rank);
            sum += blocks_[b].sum;
        }
        return sum;
    }

    // Of what is not empty.
    int32_t last() const { return greatest_.back(); }

  private:
    static constexpr int width = 32;
    struct Block {
        int32_t ranks[width + 1], procs[width + 1];  // unused ones, and the one behind all: none
        int size = 0;
        int32_t least = none;
        int64_t sum = 0;
        Block() {
            std::fill_n(ranks, width + 1, none);
            std::fill_n(procs, width + 1, none);
        }
        // Loops of constant length without branches: the compiler turns them into vector instructions.
        int position(int32_t rank) const {
            int before = 0;
            for (int i = 0; i < width; ++i) before += ranks[i] < rank;
            return before;
        }
        int32_t sum_before(int32_t rank) const {
            int32_t before = 0;
            for (int i = 0; i < width; ++i) before += procs[i] & -static_cast<int32_t>(ranks[i] < rank);
            return before;
        }
        void summarise() {
            least = none;
            sum = 0;
            for (int i = 0; i < size; ++i) least = std::min(least, procs[i]), sum += procs[i];
        }
    };

    // The first block that ends at or after the rank.
    size_t block_of(int32_t rank) const {
        return static_cast<size_t>(std::lower_bound(greatest_.begin(), greatest_.end(), rank) - greatest_.begin());
    }

    void split(size_t b) {
        Block upper;
        Block& lower = blocks_[b];
        constexpr int half = width / 2;
        std::copy_n(lower.ranks + half, half, upper.ranks);
        std::copy_n(lower.procs + half, half, upper.procs);
        std::fill_n(lower.ranks + half, half, none);
        std::fill_n(lower.procs + half, half, none);
        lower.size = upper.size = half;
        lower.summarise();
        upper.summarise();
        greatest_[b] = lower.ranks[half - 1];
        greatest_.insert(greatest_.begin() + static_cast<ptrdiff_t>(b) + 1, upper.ranks[half - 1]);
        blocks_.insert(blocks_.begin() + static_cast<ptrdiff_t>(b) + 1, upper);
    }

    std::vector<Block> blocks_;
    std::vector<int32_t> greatest_;  // rank of each block
};

}  // namespace souk::sim
