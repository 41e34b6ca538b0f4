// SPDX-License-Identifier: GPL-2.0-or-later
// JobWaits: how long each job has waited for a place, and what that makes of its bid (age.hpp). A
// job that an order, a limit or an empty budget holds does not wait in this sense, because no bid
// would help it. The times are in the jobs and their records; it owns no data. Pure; part of
// Market.
#pragma once

#include <vector>

#include "market/core/book.hpp"
#include "market/core/job_alarms.hpp"
#include "market/core/market_context.hpp"
#include "market/core/solver.hpp"

namespace souk::market {

class JobWaits {
  public:
    JobWaits(const MarketContext& context, Book& book, const Solver& solver, JobAlarms& alarms)
        : context_(context), book_(book), solver_(solver), alarms_(alarms) {}

    // How long the job has waited for a place in all.
    static Nanos waited(const Job& job, Nanos now);
    // The job waits for a place from now on, or not: its weight and the time of its next one
    // follow.
    void note(Job& job, bool waits, Nanos now);
    // After a restart: the wait that the last life of the market knew of has lasted until now.
    void resume(Job& job, Nanos now);
    // The components of a gang rank as one, by the wait of the one that has waited least.
    int32_t weight_of(const std::vector<Job*>& gang, Nanos now) const;

  private:
    const MarketContext& context_;
    Book& book_;
    const Solver& solver_;
    JobAlarms& alarms_;
};

}  // namespace souk::market
