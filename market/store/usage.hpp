// SPDX-License-Identifier: GPL-2.0-or-later
// UsageBook: what was used, in sums: a row for each day (UTC), user and node, and one for each day
// and user of the jobs that ended then. So a report over a year reads some rows and no receipts.
// The rows are keyed by day first. They join the database's next commit, with the receipts and the
// finished jobs that they sum up. Rows older than kept_days are erased. Owned by whoever owns the
// database. Errors: the database's own.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kernel/base/records.hpp"
#include "kernel/sys/store/statedb.hpp"
#include "kernel/wire/codec.hpp"
#include "market/core/market_io.hpp"

namespace souk {

struct UsageRecord {
    int64_t day = 0;  // since 1970
    uint32_t uid = 0;
    std::string user;
    NodeName node;  // empty: of jobs that ended, wherever they ran
    // of a node, by receipts
    Nanos run;  // x CPUs that were asked for
    Nanos cpu;  // that was used, as the node measured it
    Money paid, earned;
    // of jobs that ended
    int64_t jobs = 0, failed = 0, moves = 0, freezes = 0;
    Nanos waited;  // from submission to end, without the time that they ran
    // sum of (from submission to end) / (run time, 10 s at least), in thousandths
    int64_t slowdown_milli = 0;
    Nanos ran;       // run time, not x CPUs
    Nanos asked_mb;  // run time x megabytes that were asked for
    bool operator==(const UsageRecord&) const = default;
};

namespace wire {
std::string pack(const UsageRecord& record);
template <>
Result<UsageRecord> unpack<UsageRecord>(std::string_view bytes);
}  // namespace wire

inline constexpr const char* kind_usage = "usage";

class UsageBook {
  public:
    static constexpr int64_t kept_days = 1'096;

    // `records` end up in `db`; both outlive it.
    UsageBook(StateDb& db, Records& records) : db_(&db), records_(&records) {}
    Status add(const market::Receipt& receipt);
    // Adds a job that has ended.
    Status add(const market::JobRecord& job);
    // Returns committed rows after `key` that are of `from` (a day) or later, at most so many, with
    // their keys.
    Result<std::vector<std::pair<std::string, UsageRecord>>> after(const std::string& key,
                                                                   int64_t from,
                                                                   size_t rows_max) const;
    // Erases at most so many rows of days before `day` - kept_days. True: there may be more.
    Result<bool> trim(int64_t day, size_t rows_max);

  private:
    template <class F>
    Status change(int64_t day, uint32_t uid, const std::string& user, const NodeName& node, F add);

    StateDb* db_;
    Records* records_;
    std::map<std::string, UsageRecord> recent_;  // as they are in `records`
};

}  // namespace souk
