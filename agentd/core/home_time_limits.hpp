// SPDX-License-Identifier: GPL-2.0-or-later
// HomeTimeLimits: when a job has run for as long as its user lets it (RunLimits). A signal warns
// it before, once; then Home ends it as a cancel does. Only time in which it runs counts, so a job
// that waits, moves or is frozen loses nothing. Part of Home. It keeps nothing on disk: a home that
// comes back may warn once more.
//
// A place that was sold ahead has an end by the clock. A job that only holds it, or has named
// resources that were sold with it, ends then, whatever it has run; any other one goes on at the
// market's price.
//
// CPU time is known when the job's node tells it. The earliest moment at which the limit can be
// reached is what is left of it divided by the job's CPUs; then its node is asked.
#pragma once

#include <map>
#include <optional>

#include "agentd/core/home_turn.hpp"

namespace souk {

class HomeTimeLimits {
  public:
    // When there is something to do for it; never(): it has no limit, or its clock stands.
    Nanos due(const HomeJob& job) const;
    struct Due {
        bool warns = false;  // the signal is to be sent
        Cause ends;          // why the job is to end now; empty: it is not
    };
    // To be called when that is due. Tells the user of the end to come, or asks the job's node.
    Due look(const HomeJob& job, const HomeTurn& turn);
    // The end of its place is another one.
    void place_changed(uint64_t seq) { jobs_[seq].place_looked_at.reset(); }
    void forget(uint64_t seq) { jobs_.erase(seq); }

  private:
    struct State {
        RunLimits warned;  // the limits of which the signal has warned
        Nanos asked{INT64_MIN / 2};
        Nanos place_warned;  // the end of its place of which the signal has warned
        // when the end of its place is looked for next; none: at once
        std::optional<Nanos> place_looked_at;
    };
    Nanos run_due(const HomeJob& job) const;
    Nanos place_due(const HomeJob& job) const;
    Due look_at_place(const HomeJob& job, const HomeTurn& turn);
    static Nanos run_ends(const HomeJob& job);
    Nanos cpu_looked_at(const HomeJob& job) const;
    bool has_warned(const HomeJob& job) const;

    std::map<uint64_t, State> jobs_;
};

}  // namespace souk
