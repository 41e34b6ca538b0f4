// SPDX-License-Identifier: GPL-2.0-or-later
// HomeIndex: which of a home's jobs wants to be looked at first, and which jobs need which guest,
// so that no step and no tick walks all jobs. Pure; part of Home, which puts a job again after each
// step that may have changed it. Jobs go by the number of their id.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "kernel/base/ids.hpp"
#include "kernel/base/time.hpp"

namespace souk {

class HomeIndex {
  public:
    using Jobs = std::set<uint64_t>;

    // Replaces what is known of the job: it is due at that time and needs these guests (in any
    // order, each once). never() and none: it is forgotten.
    void put(uint64_t job, Nanos due, std::vector<NodeName> guests);

    Nanos next_due() const { return by_due_.empty() ? Nanos::never() : by_due_.begin()->first; }
    // Due by now, the earliest first.
    std::vector<uint64_t> due(Nanos now) const;
    // The jobs that need each guest, never none.
    const std::map<NodeName, Jobs>& guests() const { return by_guest_; }
    const Jobs& of_guest(const NodeName& node) const;

  private:
    struct Entry {
        Nanos due = Nanos::never();
        std::vector<NodeName> guests;
        bool operator==(const Entry&) const = default;
    };
    std::map<uint64_t, Entry> entries_;
    std::set<std::pair<Nanos, uint64_t>> by_due_;
    std::map<NodeName, Jobs> by_guest_;
};

}  // namespace souk
