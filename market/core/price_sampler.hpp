// SPDX-License-Identifier: GPL-2.0-or-later
// PriceSampler: once a minute, by the calendar, what the providers ask next goes into the history
// of prices, and what is to be stored of that waits here. Pure; part of Market.
#pragma once

#include <utility>
#include <vector>

#include "market/core/market_io.hpp"
#include "market/core/price_history.hpp"

namespace souk::market {

class PriceSampler {
  public:
    void load(PriceRecord record) { history_.load(std::move(record)); }
    const PriceHistory& history() const { return history_; }

    // Takes up the time: `now + calendar` is Unix time, and next() says when the next minute
    // begins. True: this minute is to be sampled. A clock that is set back by a little waits until
    // it is where it was.
    bool wants(Nanos now, Nanos calendar);
    Nanos next() const { return at_; }
    // Adds what the providers that take jobs ask next, in this minute.
    void add(Nanos now, Nanos calendar, std::vector<Offer> offers);

    std::vector<StoreOp> take_changed() { return std::exchange(changed_, {}); }

  private:
    PriceHistory history_;
    std::vector<StoreOp> changed_;
    Nanos at_;
};

}  // namespace souk::market
