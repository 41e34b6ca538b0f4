// SPDX-License-Identifier: GPL-2.0-or-later
// ClassMarket: the market as classes of equal places and jobs in rank order, one place per CPU, and
// the best cuts of it (assignment.hpp). Follows the Allocator from solve to solve: what a few
// events change is repaired in O(classes) steps each, what many change is reckoned anew. Owned by
// the Welfare algorithm. Nothing here fails.
#pragma once

#include <cstdint>
#include <vector>

#include "market/core/allocator.hpp"
#include "market/core/assignment.hpp"

namespace souk::market {

class ClassMarket {
  public:
    // Takes up what the market is now.
    void follow(Allocator& market);

    // Every competing job needs one CPU and finds its memory wherever a CPU is free, and nobody is
    // barred from a machine: then classes and ranks say all. Else a job of several CPUs counts as
    // so many of one.
    bool exact() const { return exact_; }
    const std::vector<PlaceClass>& classes() const { return classes_; }
    const Cuts& cuts() const { return cuts_; }
    // CPUs that all jobs need together
    int64_t units() const { return before_.empty() ? 0 : before_.back(); }
    // The value of unit t, from 0 to units() - 1, in rank order.
    int64_t value(int64_t t) const { return -entry(t).rank.first; }
    const Rank& rank(int64_t t) const { return entry(t).rank; }
    std::vector<ClassUse> use() const {
        return use_of(classes_, cuts_, [this](int64_t t) { return value(t); });
    }
    // The greatest value that has no place; 0: none waits.
    int64_t next_value() const {
        const int64_t placed = cuts_.empty() ? 0 : cuts_.back();
        return placed < units() ? value(placed) : 0;
    }

    // The least memory that a machine has for each of its free CPUs, in MB.
    int64_t memory_per_cpu() const { return memory_per_cpu_; }
    // The competing jobs in rank order.
    const JobOrder& order() const { return *order_; }

  private:
    const JobOrder::Entry& entry(int64_t t) const;
    void read_classes(const Allocator& market);
    void read_jobs(const JobOrder& order);
    void reckon();

    const JobOrder* order_ = nullptr;  // while follow() and what is asked after it lasts
    std::vector<int64_t> before_;      // units up to the end of each block of the order
    std::vector<PlaceClass> classes_;
    Cuts cuts_;
    uint64_t room_version_ = UINT64_MAX;
    int64_t memory_per_cpu_ = 0;  // the least that any machine has
    bool exact_ = false;
};

}  // namespace souk::market
