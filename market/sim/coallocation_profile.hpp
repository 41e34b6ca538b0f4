// SPDX-License-Identifier: GPL-2.0-or-later
// Profile: the processors that will be idle, by cluster, from now on, by the estimates. Pure; owned
// by one decision. Steps in a row: a change costs as many as lie behind it.
#pragma once

#include <optional>

#include "market/sim/coallocation_policy.hpp"

namespace souk::sim::coallocation {

struct Reservation {
    int64_t at_ms = 0, until_ms = 0;
    Allocation where;
};

class Profile {
  public:
    // Idle now, and what becomes idle when holdings end. All end after now.
    Profile(int64_t now_ms, std::span<const int64_t> idle, std::span<const Holding> holdings);
    bool has_room(const Reservation& r) const;
    void take(const Reservation& r) { change(r, -1); }
    void give(const Reservation& r) { change(r, 1); }
    // The earliest start before `before_ms` (exclusive) of a job that runs as long as its estimate.
    // Nothing: there is none.
    std::optional<Reservation> earliest(const Job& job, const Placement& placement,
                                        const Terms& terms, int64_t before_ms) const;

  private:
    struct Step {
        int64_t from_ms;  // until the next step's
        Idle idle;
    };
    size_t step_at(int64_t ms) const;
    size_t cut(int64_t ms);
    void change(const Reservation& r, int64_t sign);
    Idle least(size_t first, int64_t until_ms) const;
    std::vector<Step> steps_;  // never empty; the first one begins now
};

// Lists everything that holds processors now: the jobs that run, and the background load.
std::vector<Holding> holdings_of(const View& view);
// How long the job holds its processors in this allocation, if its user's estimate is right.
int64_t estimated_ms(const Job& job, const Allocation& where, const Terms& terms);

}  // namespace souk::sim::coallocation
