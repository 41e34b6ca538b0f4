// SPDX-License-Identifier: GPL-2.0-or-later
// Share: proportional_share. Each user is due machine time (CPU time x speed) in proportion to the
// sum of the values of its jobs; a user who cannot use its part leaves it to the others in
// proportion. Time goes in turns of one quantum: a turn lists the jobs so that the user who is owed
// most comes first, each job taking a quantum off what its user is owed; the Allocator places them
// in that order, and nobody moves of its own will. Between turns only free room is given out.
// Inside a user's part its jobs go by rank. Owned by the Solver.
//
// Bound: whom to serve is a cup game in which the fullest cups are emptied first, and that keeps
// every cup at O(log n) fills on any fixed number of processors (Kuszmaul, "Achieving Optimal
// Backlog in the Vanilla Multi-Processor Cup Game", SODA 2020). So a user gets its part to within
// O(log users) quanta of its largest job on the fastest machine, since the beginning, and in any
// window to within twice that. The tests hold one-CPU jobs on equal machines to (2 + ln users)
// quanta at every moment; that constant is measured, not proven. It needs jobs that fit wherever
// CPUs are free, and machines that neither come nor go. What is owed to a user is kept within 64
// quanta of the largest job, and ends with its last job.
#pragma once

#include <map>
#include <vector>

#include "market/core/allocator.hpp"

namespace souk::market {

class Share {
  public:
    void solve(Allocator& market, Nanos now, Nanos quantum);
    // The end of the present turn; never() if nobody waits for one.
    Nanos next_wake() const { return turn_end_; }
    void clear() { *this = {}; }

  private:
    using Wide = __int128;
    struct User {
        Wide owed = 0;     // in CPU x speed x ns x scale
        int64_t due = 0;   // rate, x scale
        int64_t used = 0;  // rate, x scale
        int64_t weight = 0;
        int64_t demand = 0;  // rate, x scale
        Wide claim = 0;
        std::vector<uint32_t> jobs;  // competing, by rank
        size_t next = 0;
    };
    static constexpr int64_t scale = 256;

    void account(Nanos now);
    void gather(const Allocator& market);
    void divide(int64_t capacity);
    std::vector<uint32_t> turn(const Allocator& market, Nanos quantum, int64_t mean_speed,
                               bool running_first);

    std::map<uint32_t, User> users_;
    Nanos last_{INT64_MIN};
    Nanos turn_end_ = Nanos::never();
    Nanos turn_began_{INT64_MIN};
};

}  // namespace souk::market
