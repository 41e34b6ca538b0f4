// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/price_forecast.hpp"

namespace souk::market {

PriceForecast::Hours PriceForecast::reckon(int32_t speed) const {
    Hours hours;
    for (const auto& [minute, row] : rows_) {
        const auto hour = static_cast<size_t>(minute / 60 % 168);
        if (const PriceRecord::Speed* const s = price_at(row, speed))
            for (MeanPrice* const mean :
                 {&hours.of_week[hour], &hours.of_day[hour % 24], &hours.all})
                mean->add(s->price, s->minutes);
    }
    return hours;
}

std::optional<Money> PriceForecast::at(int32_t speed, Nanos unix) const {
    auto known = known_.find(speed);
    if (known == known_.end()) known = known_.emplace(speed, reckon(speed)).first;
    const Hours& hours = known->second;
    const auto hour = static_cast<size_t>(minute_of(unix) / 60 % 168);
    for (const MeanPrice* const mean : {&hours.of_week[hour], &hours.of_day[hour % 24], &hours.all})
        if (mean->minutes > 0) return mean->value();
    return std::nullopt;
}

}  // namespace souk::market
