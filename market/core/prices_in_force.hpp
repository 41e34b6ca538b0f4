// SPDX-License-Identifier: GPL-2.0-or-later
// PricesInForce: has each running job pay the price that the solver finds for it, in rounds
// (price_rounds.hpp), and sums up what users and providers gain by the prices in force. Pure; part
// of Market.
#pragma once

#include <span>

#include "market/core/billing.hpp"
#include "market/core/book.hpp"
#include "market/core/ledger.hpp"
#include "market/core/market_context.hpp"
#include "market/core/price_rounds.hpp"
#include "market/core/solver.hpp"

namespace souk::market {

struct Totals {
    size_t waiting = 0, running = 0, frozen = 0, in_transit = 0, finished = 0;
    size_t standing = 0;  // frozen jobs that stand in memory by an order
    Surplus surplus;
    Money paid, earned;  // equal
};

class PricesInForce final : private PriceRounds::Payers {
  public:
    PricesInForce(const MarketContext& context, const Book& book, const Ledger& ledger,
                  const Solver& solver, Billing& billing)
        : context_(context), book_(book), ledger_(ledger), solver_(solver), billing_(billing) {}

    // The allocation, a bid or a reserve has changed.
    void changed() { rounds_.changed(); }
    // Puts a piece of a round in force, if it is time for one.
    void refresh(Nanos now) { rounds_.refresh(solver_, *this, now); }
    Nanos next_call() const { return rounds_.next_call(); }
    // Has who pays a price that holds pay what the place would cost with these bids if its node
    // took jobs, where that is less, so that no owner keeps a high price by cutting his link. To be
    // called once a minute; with many jobs it acts more rarely, as it looks at a copy of the whole.
    void lower_held(Nanos now);

    // An owner hears this of his guests and prices.
    ProviderNote note_of(const Node& node) const;
    Totals totals(Nanos now) const;
    // Nodes that were forgotten have earned this.
    static Money earned_by_forgotten(const Book& book, const Ledger& ledger);

  private:
    bool may_change(JobKey key) const override;
    bool take(const Payment& payment, Nanos now) override;
    void reckoned(const Solver::PriceStart& round, Nanos now) const override;
    void reckoned(std::span<const Payment> some, Nanos now) const override;
    bool holds(const Job& job) const;
    static bool may_fall(const Job& job, const Node& node);
    std::vector<JobKey> held() const;
    Surplus surplus() const;

    const MarketContext& context_;
    const Book& book_;
    const Ledger& ledger_;
    const Solver& solver_;
    Billing& billing_;
    PriceRounds rounds_;
    Nanos lower_at_;  // not before
    JobKey lowered_;  // the last whose price took an integral
};

}  // namespace souk::market
