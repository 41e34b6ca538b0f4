// SPDX-License-Identifier: GPL-2.0-or-later
// Supply: what a market's providers hold when they are empty, for the question whether any of them
// could take a job of so many CPUs and megabytes, and for how little. Of the providers only those
// are kept that no other equals or surpasses in all three (more CPUs, more memory, a lower
// reserve): a few, however many there are. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "kernel/base/money.hpp"

namespace souk::market {

class Supply {
  public:
    struct One {
        int32_t cpus = 0;
        int64_t memory_mb = 0;
        Money reserve;
        bool surpasses(const One& o) const {
            return cpus >= o.cpus && memory_mb >= o.memory_mb && reserve <= o.reserve;
        }
        bool operator==(const One&) const = default;
    };

    // In any order: what is kept is the same.
    void add(const One& one) {
        if (std::any_of(best_.begin(), best_.end(), [&](const One& b) { return b.surpasses(one); }))
            return;
        std::erase_if(best_, [&](const One& b) { return one.surpasses(b); });
        const auto key = [](const One& o) { return std::tuple(-o.cpus, -o.memory_mb, o.reserve); };
        best_.insert(std::upper_bound(best_.begin(), best_.end(), one,
                                      [&](const One& a, const One& b) { return key(a) < key(b); }),
                     one);
    }
    bool empty() const { return best_.empty(); }
    int32_t most_cpus() const { return best_.empty() ? 0 : best_.front().cpus; }
    int64_t most_memory_mb() const {
        int64_t most = 0;
        for (const One& b : best_) most = std::max(most, b.memory_mb);
        return most;
    }
    // The lowest reserve of those that have both; nullopt: none has.
    std::optional<Money> least_reserve(int32_t cpus, int64_t memory_mb) const {
        std::optional<Money> least;
        for (const One& b : best_)
            if (b.cpus >= cpus && b.memory_mb >= memory_mb && (!least || b.reserve < *least))
                least = b.reserve;
        return least;
    }
    bool operator==(const Supply&) const = default;

  private:
    std::vector<One> best_;  // the most CPUs first
};

}  // namespace souk::market
