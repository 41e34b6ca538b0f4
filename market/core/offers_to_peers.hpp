// SPDX-License-Identifier: GPL-2.0-or-later
// OffersToPeers: what this market offers to a job of a peer that asks, within the terms of that
// peer (docs/sites.md): the place that a job of its own would get. For a single job that place is
// kept for a while. For a gang it says which rooms its components could have, and keeps none: each
// component has its place when it is started there, and is held. Pure; part of Market.
#pragma once

#include <vector>

#include "market/core/book.hpp"
#include "market/core/market_context.hpp"
#include "market/core/quoter.hpp"
#include "market/core/reservations.hpp"
#include "market/core/site_credit.hpp"
#include "market/core/site_guests.hpp"
#include "market/core/site_offer.hpp"

namespace souk::market {

class OffersToPeers {
  public:
    OffersToPeers(const MarketContext& context, const Book& book, const SiteGuests& guests,
                  const SiteCredit& credit, Reservations& reservations)
        : context_(context),
          book_(book),
          guests_(guests),
          credit_(credit),
          reservations_(reservations) {}

    SiteOffer of(const Quoter& quoter, const SiteGuests::Site& site, const SiteAsk& ask, Nanos now);
    // Errors: a job of another site with these terms gets no place here at once, and why.
    static Result<Quote> quote(const Quoter& quoter, const JobTerms& terms, Nanos now);
    // The rooms for components that are asked about, the best first; `asks` has their terms.
    Result<std::vector<SiteRoom>> rooms(const Quoter& quoter, QuoteRequest asks,
                                        const std::vector<SitePart>& parts, Nanos now) const;

  private:
    SiteOffer offer_rooms(const Quoter& quoter, const SiteGuests::Site& site, const SiteAsk& ask,
                          int64_t cpus_most, SiteOffer offer, Nanos now) const;

    const MarketContext& context_;
    const Book& book_;
    const SiteGuests& guests_;
    const SiteCredit& credit_;
    Reservations& reservations_;
};

}  // namespace souk::market
