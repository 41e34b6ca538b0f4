// SPDX-License-Identifier: GPL-2.0-or-later
// Market, eighth part: the history of prices, and quotes (quotes.hpp). See market.hpp.
#include <algorithm>
#include <utility>

#include "market/core/market.hpp"
#include "market/core/quotes.hpp"
#include "market/core/strategy.hpp"

namespace souk::market {

void Market::sample_prices(Nanos now) {
    if (!prices_seen_.wants(now, calendar_) || settling()) return;
    const auto reported = [](const auto& entry) { return entry.second.record.has_report; };
    if (std::none_of(book_.nodes().begin(), book_.nodes().end(), reported)) return;
    std::vector<Offer> offers;
    for (const auto& [name, node] : book_.nodes())
        if (const auto spec = solver_.provider(node.key); spec && spec->accepting)
            offers.push_back({spec->speed, solver_.next_price(node.key)});
    prices_seen_.add(now, calendar_, std::move(offers));
}

// The usual price of now, reckoned once a row.
std::optional<Money> Market::usual_price_now(Nanos now) {
    if (std::exchange(usual_minute_, price_history().newest()) != price_history().newest())
        usual_ = usual_price(price_history().rows(), minute_of(now + calendar_) - usual_minutes);
    return usual_;
}

Result<Quote> Market::quote(const QuoteRequest& request, Nanos now) const {
    const Known known(*this);
    const auto why = [this](const Job& job, const Solver& s) { return why_waiting(job, s); };
    const Quotes quotes(
        {book_, places_, solver_, admission_, known, price_history(), calendar_, settling(), why});
    return quotes.of(request, now);
}

}  // namespace souk::market
