// SPDX-License-Identifier: GPL-2.0-or-later
// PriceForecast: what a place is likely to cost at a time that is to come, by what places have cost
// in the last month (price_history.hpp): the mean of the same hour of the week; without one of that
// hour the mean of the same hour of the day, and without one of that the mean of all. Those prices
// are the least bids that would have won a place, so they are what the bids are worth that a place
// which is sold ahead will displace, if these hours are as the last ones were. Pure.
#pragma once

#include <array>
#include <map>
#include <optional>

#include "kernel/base/money.hpp"
#include "kernel/base/time.hpp"
#include "market/core/price_history.hpp"

namespace souk::market {

class PriceForecast {
  public:
    // `rows` outlives it and does not change meanwhile.
    explicit PriceForecast(const std::map<int64_t, PriceRecord>& rows) : rows_(rows) {}

    // Per CPU-hour on a machine of this speed at this time (Unix). nullopt: the history has no
    // price of such a machine.
    std::optional<Money> at(int32_t speed, Nanos unix) const;

  private:
    struct Hours {
        std::array<MeanPrice, 168> of_week;
        std::array<MeanPrice, 24> of_day;
        MeanPrice all;
    };
    Hours reckon(int32_t speed) const;

    const std::map<int64_t, PriceRecord>& rows_;
    mutable std::map<int32_t, Hours> known_;  // by speed
};

}  // namespace souk::market
