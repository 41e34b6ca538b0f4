// SPDX-License-Identifier: GPL-2.0-or-later
// RankedJobs: the active jobs of one machine by rank, with the processors that each needs and
// whether it runs. Flat blocks of 32, so that the dozens of jobs that are usually about cost a few
// cache lines, and thousands a look at each block's summary. Ranks are 0 to INT32_MAX - 1.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernel/base/check.hpp"

namespace souk::sim {

class RankedJobs {
  public:
    static constexpr int32_t none = INT32_MAX;

    // The rank is not in it.
    void add(int32_t rank, int32_t procs, bool runs) {
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
        std::copy_backward(block.entries + at, block.entries + block.size,
                           block.entries + block.size + 1);
        block.entries[at] = {rank, procs};
        const uint32_t before = (1u << at) - 1;
        block.running = (block.running & before) | (block.running & ~before) << 1 |
                        static_cast<uint32_t>(runs) << at;
        ++block.size;
        if (runs)
            block.held += procs;
        else
            block.least_waiting = std::min(block.least_waiting, procs);
        greatest_[b] = block.entries[block.size - 1].rank;
    }

    // The rank is in it.
    void remove(int32_t rank) {
        const size_t b = block_of(rank);
        MUST(b < blocks_.size());
        Block& block = blocks_[b];
        const int at = block.position(rank);
        MUST(at < block.size && block.entries[at].rank == rank);
        if (block.size == 1) {
            blocks_.erase(blocks_.begin() + static_cast<ptrdiff_t>(b));
            greatest_.erase(greatest_.begin() + static_cast<ptrdiff_t>(b));
            return;
        }
        // least_waiting may stay too small
        if (block.running >> at & 1) block.held -= block.entries[at].procs;
        std::copy(block.entries + at + 1, block.entries + block.size, block.entries + at);
        const uint32_t before = (1u << at) - 1;
        block.running = (block.running & before) | (block.running >> 1 & ~before);
        --block.size;
        greatest_[b] = block.entries[block.size - 1].rank;
    }

    // Gives each job in order its processors if that many of `procs` are left. The jobs before
    // `from` are known to have the processors that they should. Calls changed(rank, runs) for every
    // job whose state differs from before.
    template <class Changed>
    void settle(int32_t from, int32_t procs, Changed&& changed) {
        size_t b = 0;
        for (; b < blocks_.size() && greatest_[b] < from; ++b) procs -= blocks_[b].held;
        for (; b < blocks_.size(); ++b) {
            Block& block = blocks_[b];
            const int32_t left = procs;
            // All running jobs still fit, and no waiting job fits, so nothing changes in this
            // block.
            if (block.held > left || block.least_waiting <= left) {
                for (uint32_t differ = block.settle(left); differ != 0; differ &= differ - 1) {
                    const int i = std::countr_zero(differ);
                    changed(block.entries[i].rank, (block.running >> i & 1) != 0);
                }
            }
            procs = left - block.held;
        }
    }

  private:
    static constexpr int width = 32;
    struct Entry {
        int32_t rank, procs;
    };
    struct Block {
        Entry entries[width];
        uint32_t running = 0;  // bit i: entry i
        int size = 0;
        int32_t least_waiting = none;  // at most the least that a waiting one needs
        int32_t held = 0;              // by those that run

        int position(int32_t rank) const {
            int at = 0;
            for (int step = width / 2; step > 0; step /= 2)
                at += at + step <= size && entries[at + step - 1].rank < rank ? step : 0;
            return at + (at < size && entries[at].rank < rank);
        }
        // Returns the entries whose running state changes. The loop has no branches, because
        // whether an entry fits is as good as random, and the processor would guess wrong half of
        // the time.
        uint32_t settle(int32_t left) {
            uint32_t runs = 0;
            int32_t least = none;
            const int32_t begin = left;
            for (int i = 0; i < size; ++i) {
                const int32_t procs = entries[i].procs;
                const auto fits = static_cast<uint32_t>(procs <= left);
                const int32_t mask = -static_cast<int32_t>(fits);
                left -= procs & mask;
                least = std::min(least, procs | (mask & none));
                runs |= fits << i;
            }
            held = begin - left;
            least_waiting = least;
            const uint32_t differ = runs ^ running;
            running = runs;
            return differ;
        }
        void summarise() {
            least_waiting = none;
            held = 0;
            for (int i = 0; i < size; ++i) {
                if (running >> i & 1)
                    held += entries[i].procs;
                else
                    least_waiting = std::min(least_waiting, entries[i].procs);
            }
        }
    };

    // The first block that ends at or after the rank.
    size_t block_of(int32_t rank) const {
        return static_cast<size_t>(std::lower_bound(greatest_.begin(), greatest_.end(), rank) -
                                   greatest_.begin());
    }

    void split(size_t b) {
        constexpr int half = width / 2;
        Block upper;
        Block& lower = blocks_[b];
        std::copy_n(lower.entries + half, half, upper.entries);
        upper.running = lower.running >> half;
        lower.running &= (1u << half) - 1;
        lower.size = upper.size = half;
        lower.summarise();
        upper.summarise();
        greatest_[b] = lower.entries[half - 1].rank;
        greatest_.insert(greatest_.begin() + static_cast<ptrdiff_t>(b) + 1,
                         upper.entries[half - 1].rank);
        blocks_.insert(blocks_.begin() + static_cast<ptrdiff_t>(b) + 1, upper);
    }

    std::vector<Block> blocks_;
    std::vector<int32_t> greatest_;  // rank of each block
};

}  // namespace souk::sim
