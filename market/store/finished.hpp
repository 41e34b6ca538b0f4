// SPDX-License-Identifier: GPL-2.0-or-later
// FinishedJobs: the records of finished jobs in the market's state database, and in no memory. A
// row for each, by the number in which they ended, one that says under which number a job is found,
// and one by whose it is. They join the database's next commit, in which their rows among the live
// jobs go. When there are too many, the oldest of whoever has most are erased
// (finished_shares.hpp). Owned by whoever owns the database. Errors: the database's own. A record
// that cannot be read is passed over in lists, and erased when it is old.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernel/sys/store/statedb.hpp"
#include "market/core/market.hpp"
#include "market/store/finished_shares.hpp"

namespace souk {

class FinishedJobs {
  public:
    // Counts them. Those of a version before, which knew of no shares, are read once. `db` outlives
    // it.
    static Result<FinishedJobs> open(StateDb& db) { return open(db, db); }
    // Writes into `records`, which end up in `db`, and outlive it too.
    static Result<FinishedJobs> open(StateDb& db, Records& records);

    void append(const market::JobRecord& record);
    // Returns nothing if the job is not known, or was erased. Jobs that are not committed yet are
    // found too.
    Result<std::optional<market::JobRecord>> find(const JobId& id) const;
    uint64_t count() const { return shares_.count(); }
    uint64_t newest() const { return newest_; }

    // Returns committed jobs whose number is below `before`, the newest first, at most so many.
    Result<std::vector<market::JobRecord>> before(uint64_t before, size_t records_max) const;
    // Returns committed jobs by id, after one (an empty home: from the first on), at most so many:
    // ids with their numbers.
    using Entry = std::pair<JobId, uint64_t>;
    Result<std::vector<Entry>> after(const JobId& id, size_t entries_max) const;

    // Erases those that ended before `since` (Unix time), and those above `count_max`, the oldest
    // of whoever has most: at most `rows_max` of each. True: there are more.
    Result<bool> trim(uint64_t count_max, Nanos since, size_t rows_max);

  private:
    FinishedJobs(StateDb& db, Records& records) : db_(&db), records_(&records) {}
    Status count_shares();
    Status share_old();
    void share(const market::JobRecord& record, const std::string& key);
    Result<bool> trim_by_age(Nanos since, size_t rows_max);
    Result<bool> trim_by_share(uint64_t count_max, size_t rows_max);
    Status erase(const std::string& key, const std::string& index);

    StateDb* db_;
    Records* records_;
    FinishedShares shares_;
    uint64_t oldest_ = 1, newest_ = 0;  // none is below, none above
    uint64_t shared_ = 0;               // the newest with a row that says whose it is
};

}  // namespace souk
