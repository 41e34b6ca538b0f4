// SPDX-License-Identifier: GPL-2.0-or-later
// PriceLearning: `pvdctl set price auto`. Once an hour it asks the market for its prices of the
// last 30 days and computes from them (market/core/reserve_learner.hpp) the price that this node
// asks from then on.
//
// While this node has a place free, its own price may be what a place costs, and a learner that
// used such prices would follow itself. So the node keeps what it asked in each hour, and an hour
// in which a place cost no more counts as an hour without a buyer. Owned by the Agent.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "agentd/daemon/owner_offer.hpp"
#include "market/core/reserve_learner.hpp"

namespace souk {

class JsonWriter;

// One row of the market's answer to `prices`, for places as fast as this node.
struct PriceSeen {
    int64_t from_unix_s = 0, minutes = 0;
    Money price;
    bool operator==(const PriceSeen&) const = default;
};
// Takes from each row the price at the greatest speed that is not above `speed`. Errors: the text
// is not such a list.
Result<std::vector<PriceSeen>> read_prices(const std::string& json, int64_t speed);

class PriceLearning {
  public:
    PriceLearning(Loop& loop, Log& log, const NodeName& node, Commits& commits, MarketLink& market,
                  OwnerOffer& offer)
        : loop_(loop), log_(log), node_(node), commits_(commits), market_(market), offer_(offer) {}
    // Reads what this node has asked in the hours before.
    Status load();
    // To be called at the start, and when the owner has changed the price: it begins to learn, or
    // stops.
    void learn_soon();
    void write(JsonWriter& j) const;

  private:
    void ask_prices(const std::string& after);
    void learned();

    Loop& loop_;
    Log& log_;
    const NodeName& node_;
    Commits& commits_;
    MarketLink& market_;
    OwnerOffer& offer_;
    std::vector<PriceSeen> seen_;
    std::map<int64_t, Money> asked_;  // by hour
    market::ReserveLearner::Best best_;
    size_t hours_ = 0;
    std::string trouble_;
    Timer timer_;
};

}  // namespace souk
