// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/bidding.hpp"

#include <algorithm>
#include <utility>

#include "market/core/site_offer.hpp"
#include "market/core/strategy.hpp"

namespace souk::market {

void Bidding::set(Job& job, Nanos now) {
    const JobReport& r = job.record.report;
    const PriceRows& rows = history().rows();
    Standing standing;
    standing.spent = bill::cost(job, now);
    standing.left = r.submitted + r.terms.finish - context_.unix(now);
    standing.done = job.record.done;
    standing.minute = minute_of(context_.unix(now));
    if (strategy_of(r.terms) == Strategy::patient) standing.usual = usual_price_now(now);
    const Bid bid = bid_of(r.terms, standing, rows);
    const Money before = std::exchange(job.bid, bid.price);
    const bool was_unsure = std::exchange(job.in_time, bid.in_time).value_or(1) < deadline_chance;
    job.bid_until = bid.good_for == Nanos::never() ? Nanos::never() : now + bid.good_for;
    if (job.bid != before) work_.touch(job);
    // A price that was fixed when the place was sold follows no bid. At another site the job pays
    // no more than its user lets it there, whatever that one says.
    const bool is_elsewhere = !of_site(r.where).site.empty() && of_site(job.id().home).site.empty();
    const Money most = is_elsewhere ? std::min(job.bid, most_elsewhere(r.terms)) : job.bid;
    if (job.record.price > most && job.phase() == JobPhase::running && !booked_price(job))
        billing_.set_price(job, most, now);
    if (was_unsure != (job.in_time.value_or(1) < deadline_chance)) notes_.of(job);
}

// The usual price of this time of the day. It is reckoned once for each new row of prices.
std::optional<Money> Bidding::usual_price_now(Nanos now) {
    if (std::exchange(usual_minute_, history().newest()) != history().newest())
        usual_ = usual_price(history().rows(), minute_of(context_.unix(now)) - usual_minutes);
    return usual_;
}

bool Bidding::sample(Nanos now) {
    if (!samples_.wants(now, context_.calendar) || settling_.is_on()) return false;
    const auto reported = [](const auto& entry) { return entry.second.record.has_report; };
    if (std::none_of(book_.nodes().begin(), book_.nodes().end(), reported)) return false;
    std::vector<Offer> offers;
    for (const auto& [name, node] : book_.nodes())
        if (const auto spec = solver_.provider(node.key); spec && spec->accepting)
            offers.push_back({spec->speed, solver_.next_price(node.key)});
    samples_.add(now, context_.calendar, std::move(offers));
    return true;
}

}  // namespace souk::market
