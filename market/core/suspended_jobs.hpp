// SPDX-License-Identifier: GPL-2.0-or-later
// SuspendedJobs: suspended jobs that stand in memory first (standing.hpp).
//
// A job that loses its place by a bid, or by a turn of proportional_share, is told to stop where it
// is if the node offers enough memory for all that have places there and all that stand there. For
// the solver it is a frozen job like any other, whose memory is free: what wins that memory waits
// until enough of those that stand have gone to disk. A job that stands and wins a place elsewhere
// goes to disk first, too. Its memory is on its node's account all the while. Pure; part of Market.
#pragma once

#include <cstdint>
#include <vector>

#include "market/core/allocation.hpp"
#include "market/core/book.hpp"
#include "market/core/job_alarms.hpp"
#include "market/core/solver.hpp"
#include "market/core/standing.hpp"

namespace souk::market {

class SuspendedJobs {
  public:
    SuspendedJobs(Book& book, const Solver& solver, const Allocation& allocation, JobAlarms& alarms)
        : book_(book), solver_(solver), allocation_(allocation), alarms_(alarms) {}

    // Whether a job that is to be suspended only stops and keeps its memory; Job::stands_for says
    // for how long.
    bool stands_first(Job& job, Nanos now);
    // After a report: since when the job stands, as far as this life of the market knows.
    void note(Job& job, Nanos now);
    // The longest time is less than before: that holds for those that stand already.
    void bound();
    // Why a job that stands without a place goes to disk now. Empty: it stands on.
    Reason why_to_disk(const Job& job) const;
    // The jobs on the node that go to disk so that all who have places there fit.
    std::vector<Job*> who_goes(const Node& node, Nanos now);
    // The job's bid has won a place again; the job has ended.
    void won(const Job& job, Nanos now) { standing_.won(job.key.n, now); }
    void forget(const Job& job) { standing_.forget(job.key.n); }

  private:
    static bool is_closed(const Node& node);
    std::vector<StandingJobs::One> standing_on(const Node& node) const;
    int64_t missing_mb(const Node& node) const;
    bool has_no_room(const Job& job, const Node& at) const;

    Book& book_;
    const Solver& solver_;
    const Allocation& allocation_;
    JobAlarms& alarms_;
    StandingJobs standing_;
};

}  // namespace souk::market
