// SPDX-License-Identifier: GPL-2.0-or-later
// Bidding: what each job bids now, by its terms and its strategy (strategy.hpp), and the history of
// prices that strategies, quotes and people look at. Pure; part of Market.
#pragma once

#include <optional>
#include <vector>

#include "market/core/billing.hpp"
#include "market/core/book.hpp"
#include "market/core/market_context.hpp"
#include "market/core/notes.hpp"
#include "market/core/price_sampler.hpp"
#include "market/core/settling.hpp"
#include "market/core/solver.hpp"
#include "market/core/work_list.hpp"

namespace souk::market {

class Bidding {
  public:
    Bidding(const MarketContext& context, const Book& book, const Solver& solver,
            const Settling& settling, Billing& billing, Notes& notes, WorkList& work)
        : context_(context),
          book_(book),
          solver_(solver),
          settling_(settling),
          billing_(billing),
          notes_(notes),
          work_(work) {}

    // Reckons the bid anew. A job that runs pays no more than it bids.
    void set(Job& job, Nanos now);

    void load(PriceRecord record) { samples_.load(std::move(record)); }
    const PriceHistory& history() const { return samples_.history(); }
    // Adds the prices of this minute to the history, once a minute. True: it has.
    bool sample(Nanos now);
    Nanos next_sample() const { return samples_.next(); }
    std::vector<StoreOp> take_changed() { return samples_.take_changed(); }

  private:
    std::optional<Money> usual_price_now(Nanos now);

    const MarketContext& context_;
    const Book& book_;
    const Solver& solver_;
    const Settling& settling_;
    Billing& billing_;
    Notes& notes_;
    WorkList& work_;
    PriceSampler samples_;
    int64_t usual_minute_ = -1;  // the newest row of prices when `usual_` was reckoned
    std::optional<Money> usual_;
};

}  // namespace souk::market
