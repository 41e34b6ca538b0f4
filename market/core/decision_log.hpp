// SPDX-License-Identifier: GPL-2.0-or-later
// DecisionLog: who hears of each decision of the Market, of all that it depends on, and of the
// prices and receipts that come of it. The Market calls it as things happen; with none it does
// nothing. decision_text.hpp makes text of it. Pure, owned by the shell; outlives the Market.
#pragma once

#include <span>

#include "market/core/ledger.hpp"
#include "market/core/solver.hpp"

namespace souk::market {

class Market;
struct Job;
struct JobRecord;
struct Node;

class DecisionLog {
  public:
    virtual ~DecisionLog() = default;

    // The solver is told these before it decides.
    virtual void told(const Node& node, const ProviderSpec& spec) = 0;
    virtual void told(const Job& job, const JobDemand& spec) = 0;
    virtual void gone(const Job& job) = 0;
    // The solver changed something about the job.
    virtual void changed(JobKey job) = 0;
    // The solver has decided on what it was told. `now` is Unix time.
    virtual void decided(const Market& market, Nanos now) = 0;

    // Prices that were reckoned on the newest decision: of a whole round, of which `rest` is left
    // for later; then of some of the rest.
    virtual void reckoned(const Solver::PriceStart& round, Nanos now) = 0;
    virtual void reckoned(std::span<const Payment> some, Nanos now) = 0;
    // A job is told to run at this price.
    virtual void ordered(const Job& job, Money price) = 0;
    // From now on the job pays the price of its record, where its record says.
    virtual void in_force(const Job& job, Nanos now) = 0;
    // It was charged less than its price x CPUs x run time: its budget or its user's day has ended.
    virtual void cut(const Job& job, Nanos now) = 0;
    // A receipt gives back what its place has not measured (use_check.hpp).
    virtual void taken_back(const Job& job, const Receipt& receipt, Nanos now) = 0;
    virtual void posted(const Job& job, const Receipt& receipt, Nanos now) = 0;

    // The number of the newest decision; 0: none was made.
    virtual uint64_t number() const = 0;
};

}  // namespace souk::market
