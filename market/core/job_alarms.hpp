// SPDX-License-Identifier: GPL-2.0-or-later
// JobAlarms: each job has one alarm, at the first moment at which time alone changes something
// about it: its order is silent for too long, its budget is used up, its node is lost for good.
// Pure; owned by Market.
#pragma once

#include "market/core/alarms.hpp"
#include "market/core/book.hpp"
#include "market/core/market_context.hpp"
#include "market/core/orders.hpp"

namespace souk::market {

class JobAlarms {
  public:
    JobAlarms(const MarketContext& context, Book& book, const Orders& orders)
        : context_(context), book_(book), orders_(orders) {}

    // Reckons the job's alarm anew. To be called after each change of what it depends on.
    void set(Job& job);
    // The first job whose alarm has come, which has none from then on; null: none has.
    Job* take_due(Nanos now);
    // When a job that runs, as far as is known, is sure not to run or cannot be vouched for: its
    // node is lost, or its home is away for longer than the node lets it run alone.
    Nanos surely_stopped(const Job& job) const;
    Nanos next() const { return alarms_.next(); }
    size_t size() const { return alarms_.size(); }

  private:
    const MarketContext& context_;
    Book& book_;
    const Orders& orders_;
    Alarms alarms_;
};

}  // namespace souk::market
