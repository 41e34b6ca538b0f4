// SPDX-License-Identifier: GPL-2.0-or-later
// HomeClock: how long a job has run, what that costs, and what it has used. A clock
// that runs is in the job's record, so that a daemon that comes back knows since when; here is only
// what nobody has confirmed yet since this daemon was away. Part of Home.
#pragma once

#include <map>

#include "agentd/core/home_turn.hpp"

namespace souk {

class HomeClock {
  public:
    static void start(HomeJob& job, const HomeTurn& turn);
    static void stop(HomeJob& job, Nanos now);
    // The node says that the job runs. A job that the owner of the node has paused does not pay.
    // Returns whether the clock began or stopped, which the market is to hear.
    static bool runs_on(HomeJob& job, const GuestEvent& event, const HomeTurn& turn);
    // To be written down: what has run so far is kept, whatever becomes of this daemon.
    static void fold(HomeJob& job, Nanos now);
    static bool runs(const HomeJob& job) { return job.running_since != Nanos::never(); }
    static Nanos run_time(const HomeJob& job, Nanos now);  // with the present stretch
    // The same on a machine of speed 100: each stretch counts by the speed of its node.
    static Nanos work(const HomeJob& job, Nanos now);
    // The cost by the price that the market told last; exact if the job has not run since.
    static Money cost(const HomeJob& job, Nanos now);
    // At its price of now, until it has cost that much; whole seconds.
    static int64_t seconds_until(const HomeJob& job, Money spent, Nanos now);
    // Adds the CPU time that the node tells; the node tells all that the present epoch has used. Of
    // its memory the most counts that any node has told.
    static void tally_use(HomeJob& job, const GuestEvent& event);

    // Read back from disk, on a machine that has that `boot` (0: not known): its clock stands, and
    // if it ran since the same boot its node's first word settles what has run meanwhile (prove).
    void loaded(HomeJob& job, uint64_t boot);
    // The first word of its node after this daemon was away. A job that runs has run all the while:
    // nobody else could have stopped it. One that does not has ended or stood still at a time that
    // nobody saw; what counts is the CPU time that its node measured.
    void prove(HomeJob& job, const GuestEvent& event, Nanos now);
    bool unproven(const HomeJob& job) const { return unproven_.contains(job.id.seq); }
    void forget(uint64_t seq) { unproven_.erase(seq); }

  private:
    std::map<uint64_t, Nanos> unproven_;  // since when it ran, if its node says that it runs
};

}  // namespace souk
