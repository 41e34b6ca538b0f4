// SPDX-License-Identifier: GPL-2.0-or-later
// FinishedJobs: the records of finished jobs in the market's state database, and in no memory. A
// row for each, by the number in which they ended (1, 2, .. without a gap; the oldest are erased
// first), and one that says under which number a job is found. They join the database's next
// commit, in which their rows among the live jobs go. Owned by whoever owns the database. Errors:
// the database's own. A record that
// cannot be read is passed over in lists, and erased when it is old.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernel/sys/store/statedb.hpp"
#include "market/core/market.hpp"

namespace souk {

class FinishedJobs {
  public:
    // Looks for the oldest and the newest. `db` outlives it.
    static Result<FinishedJobs> open(StateDb& db) { return open(db, db); }
    // Writes into `records`, which end up in `db`, and outlive it too.
    static Result<FinishedJobs> open(StateDb& db, Records& records);

    void append(const market::JobRecord& record);
    // Returns nothing if the job is not known, or was erased. Jobs that are not committed yet are
    // found too.
    Result<std::optional<market::JobRecord>> find(const JobId& id) const;
    uint64_t count() const { return newest_ - oldest_ + 1; }
    uint64_t newest() const { return newest_; }

    // Returns committed jobs whose number is below `before`, the newest first, at most so many.
    Result<std::vector<market::JobRecord>> before(uint64_t before, size_t records_max) const;
    // Returns committed jobs by id, after one (an empty home: from the first on), at most so many:
    // ids with their numbers.
    using Entry = std::pair<JobId, uint64_t>;
    Result<std::vector<Entry>> after(const JobId& id, size_t entries_max) const;

    // Erases the oldest: those above `count_max`, and those that ended before `since` (Unix time),
    // at most `rows_max` of them. True: there are more.
    Result<bool> trim(uint64_t count_max, Nanos since, size_t rows_max);

  private:
    FinishedJobs(StateDb& db, Records& records) : db_(&db), records_(&records) {}
    StateDb* db_;
    Records* records_;
    uint64_t oldest_ = 1, newest_ = 0;
};

}  // namespace souk
