// SPDX-License-Identifier: GPL-2.0-or-later
// Two sets over ranks 0 to n-1 for the replay of greedy migration, both in flat arrays of 4 bytes a rank, all of whose
// operations cost O(log n): who waits (the first from a rank on that needs at most so many processors), and who runs
// (processors held before a rank; the last one).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernel/base/check.hpp"

namespace souk::sim {

// A tree of minima, 16 to a node: one node is one cache line.
class WaitingSet {
  public:
    static constexpr uint32_t none = UINT32_MAX;

    explicit WaitingSet(size_t n) {
        do {
            n = (n + 15) / 16;
            levels_.emplace_back(n * 16, absent);
        } while (n > 1);
    }
    void add(uint32_t rank, int32_t procs) {
        for (auto& level : levels_) {
            if (level[rank] <= procs) return;
            level[rank] = procs;
            rank /= 16;
        }
    }
    void remove(uint32_t rank) {
        int32_t least = absent;
        for (auto& level : levels_) {
            const int32_t before = level[rank];
            level[rank] = least;
            const int32_t* node = &level[rank & ~15u];
            least = node[0];
            for (int i = 1; i < 16; ++i) least = std::min(least, node[i]);
            if (before > least) return;  // the node's minimum is another one's, and stays
            rank /= 16;
        }
    }
    // The first rank at or after `from` that needs at most `procs`.
    uint32_t first(uint32_t from, int64_t procs) const {
        size_t depth = 0;
        uint64_t at = from;
        for (;;) {  // up, until a node has one at or after `at`
            if (at >= levels_[depth].size()) return none;
            const uint64_t end = (at | 15) + 1;
            for (; at < end; ++at)
                if (levels_[depth][at] <= procs) return descend(depth, at, procs);
            if (depth + 1 == levels_.size()) return none;
            ++depth;
            at = end / 16;
        }
    }

  private:
    static constexpr int32_t absent = INT32_MAX;  // no machine has as many processors

    uint32_t descend(size_t depth, uint64_t at, int64_t procs) const {
        while (depth-- > 0) {
            at *= 16;
            while (levels_[depth][at] > procs) ++at;
        }
        return static_cast<uint32_t>(at);
    }
    std::vector<std::vector<int32_t>> levels_;
};

// A Fenwick tree of held processors, and bits in words of 64 in three levels.
class RunningSet {
  public:
    static constexpr uint32_t none = UINT32_MAX;

    explicit RunningSet(size_t n) : sums_(n + 1) {
        do {
            n = (n + 63) / 64;
            bits_.emplace_back(n);
        } while (n > 1);
    }
    void add(uint32_t rank, int32_t procs) {
        change(rank, procs);
        for (auto& level : bits_) {
            level[rank / 64] |= 1ull << rank % 64;
            rank /= 64;
        }
    }
    void remove(uint32_t rank, int32_t procs) {
        change(rank, -procs);
        for (auto& level : bits_) {
            if ((level[rank / 64] &= ~(1ull << rank % 64)) != 0) break;
            rank /= 64;
        }
    }
    bool has(uint32_t rank) const { return bits_[0][rank / 64] >> rank % 64 & 1; }
    // Processors held by ranks before this one.
    int64_t held_before(uint32_t rank) const {
        int64_t sum = 0;
        for (uint32_t i = rank; i > 0; i &= i - 1) sum += sums_[i];
        return sum;
    }
    // The last rank that runs; there is one.
    uint32_t last() const {
        MUST(bits_.back()[0] != 0);
        uint64_t at = 0;
        for (size_t depth = bits_.size(); depth-- > 0;) at = at * 64 + 63 - __builtin_clzll(bits_[depth][at]);
        return static_cast<uint32_t>(at);
    }

  private:
    void change(uint32_t rank, int32_t by) {
        for (size_t i = rank + 1; i < sums_.size(); i += i & -i) sums_[i] += by;
    }
    std::vector<int32_t> sums_;
    std::vector<std::vector<uint64_t>> bits_;
};

}  // namespace souk::sim
