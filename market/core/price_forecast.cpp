// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/price_forecast.hpp"

namespace souk::market {

PriceForecast::Hours PriceForecast::reckon(int32_t speed) const {
    Hours hours;
    for (const auto& [minute, row] : rows_) {
        const auto hour = static_cast<size_t>(minute / 60 % 168);
        for (const PriceRecord::Speed& s : row.speeds) {
            if (s.speed > speed) continue;
            // The fastest come first, so this is the price of the nearest speed that is not faster.
            if (s.minutes > 0)
                for (Mean* const mean :
                     {&hours.of_week[hour], &hours.of_day[hour % 24], &hours.all})
                    mean->add(s.price, s.minutes);
            break;
        }
    }
    return hours;
}

std::optional<Money> PriceForecast::at(int32_t speed, Nanos unix) const {
    auto known = known_.find(speed);
    if (known == known_.end()) known = known_.emplace(speed, reckon(speed)).first;
    const Hours& hours = known->second;
    const auto hour = static_cast<size_t>(minute_of(unix) / 60 % 168);
    for (const Mean* const mean : {&hours.of_week[hour], &hours.of_day[hour % 24], &hours.all})
        if (mean->minutes > 0) return Money{static_cast<int64_t>(mean->sum / mean->minutes)};
    return std::nullopt;
}

}  // namespace souk::market
