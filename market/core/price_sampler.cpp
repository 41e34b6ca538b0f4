// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/price_sampler.hpp"

namespace souk::market {

bool PriceSampler::wants(Nanos now, Nanos calendar) {
    constexpr int64_t set_back_max = 5;  // minutes
    const int64_t minute = minute_of(now + calendar);
    at_ = Nanos{(minute + 1) * minute_span.ns} - calendar;
    const int64_t newest_minute = history_.newest();
    return minute > newest_minute || newest_minute - minute > set_back_max;
}

void PriceSampler::add(Nanos now, Nanos calendar, std::vector<Offer> offers) {
    PriceHistory::Changes changes =
        history_.add(record_of(minute_of(now + calendar), std::move(offers)));
    for (const int64_t gone : changes.erase) changed_.push_back(ErasePrice{gone});
    for (PriceRecord& record : changes.put) changed_.push_back(std::move(record));
}

}  // namespace souk::market
