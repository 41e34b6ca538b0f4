// SPDX-License-Identifier: GPL-2.0-or-later
// HomeDelays: jobs that wait for a time: until JobTies::begin, and before a failed job is run
// again, from its beginning, as often as its user says (JobTries). That pause is pause_least, then
// twice as long each time, and pause_most at most. Part of Home. How often a job was tried is in
// its record; a home that comes back lets a pause begin anew.
#pragma once

#include <map>
#include <string>

#include "agentd/core/home_turn.hpp"

namespace souk {

class HomeDelays {
  public:
    static constexpr Nanos pause_least = Nanos::from_s(5), pause_most = Nanos::from_s(300);

    // Tells whether a job is run again after that end. `lost`: its node was, or its capsule was
    // killed.
    static bool takes(const HomeJob& job, int32_t wait_status, bool lost);
    // Says for people what has ended the job, and which try comes when.
    static Cause why(const HomeJob& job, int32_t wait_status, const Trouble& end);
    // It failed once more, and no try is left; empty: it is no such job.
    static Cause over(const HomeJob& job, int32_t wait_status, const Trouble& why);

    // The next try begins after a pause.
    void try_again(HomeJob& job, Nanos now);
    // A new job may wait: how long, the next look reckons.
    void submitted(const HomeJob& job) {
        if (job.group.begin > job.submitted) until_[job.id.seq] = {};
    }
    // The daemon has found the job, or looked at it again: it may wait.
    void came(const HomeJob& job, const HomeTurn& turn);
    // Says for people what the job waits for; empty: for no time.
    std::string waits(const HomeJob& job) const;
    Nanos due(const HomeJob& job) const;
    // To be called when that is due: it may be placed.
    void look(const HomeJob& job, const HomeTurn& turn);
    void forget(uint64_t seq) { until_.erase(seq); }

  private:
    std::map<uint64_t, Nanos> until_;
};

}  // namespace souk
