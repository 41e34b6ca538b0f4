// SPDX-License-Identifier: GPL-2.0-or-later
// MarketRecords: the market's records in its database: reads them into the machine, writes what a
// step stores, and erases what is old a bounded number at a time. A commit is the step's. Owned by
// Marketd.
#pragma once

#include <optional>
#include <vector>

#include "kernel/sys/store/journal_db.hpp"
#include "market/core/market.hpp"
#include "market/daemon/config.hpp"
#include "market/daemon/step_taker.hpp"
#include "market/store/finished.hpp"
#include "market/store/receipts.hpp"
#include "market/store/site_book.hpp"
#include "market/store/usage.hpp"

namespace souk {

class MarketRecords {
  public:
    MarketRecords(Loop& loop, Log& log, const MarketConfig& config, StateDb db,
                  market::Market& market, Warnings& warnings, StepTaker& steps)
        : loop_(loop),
          log_(log),
          config_(config),
          state_(std::move(db)),
          market_(market),
          warnings_(warnings),
          steps_(steps) {}

    // Errors: a record that cannot be read. Those that are set aside are said by say_aside().
    struct Read {
        size_t jobs = 0, nodes = 0;
    };
    Result<Read> load();
    void say_aside();
    void store(const std::vector<market::StoreOp>& ops);
    // The market's machine knows the newest of the finished jobs alone. It is told of this one
    // again, if it is another.
    Status recall(const JobId& id);
    void trim_finished();
    void close();

    JournalDb& state() { return state_; }
    const JournalDb& state() const { return state_; }
    ReceiptBook& book() { return *book_; }
    const ReceiptBook& book() const { return *book_; }
    FinishedJobs& finished() { return *finished_; }
    const FinishedJobs& finished() const { return *finished_; }
    UsageBook& usage() { return *usage_; }
    SiteBook& sites() { return *sites_; }
    const SiteBook& sites() const { return *sites_; }

    static Nanos calendar();  // what to add to the loop's time for Unix time

  private:
    market::MetaRecord meta_again() const;
    void load_lost_accounts();
    template <class Record>
    void sum_up(const Record& record);
    void trim_usage();

    Loop& loop_;
    Log& log_;
    const MarketConfig& config_;
    JournalDb state_;
    market::Market& market_;
    Warnings& warnings_;
    StepTaker& steps_;
    std::optional<ReceiptBook> book_;
    std::optional<FinishedJobs> finished_;
    std::optional<UsageBook> usage_;
    std::optional<SiteBook> sites_;
    Timer trim_timer_, usage_timer_;
};

}  // namespace souk
