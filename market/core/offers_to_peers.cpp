// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/offers_to_peers.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "kernel/base/fields.hpp"

namespace souk::market {
namespace {

// Terms of another site's job as they count here: its project is of that site, which may also say
// more than it should.
JobTerms terms_here(const JobTerms& theirs) {
    JobTerms terms = told_to_sites(theirs);
    terms.project.clear();
    return terms;
}

QuoteRequest asked_by_site(const JobTerms& terms) {
    QuoteRequest request;
    request.uid = UINT32_MAX;
    request.terms = terms_here(terms);
    return request;
}

}  // namespace

Result<Quote> OffersToPeers::quote(const Quoter& quoter, const JobTerms& terms, Nanos now) {
    TRY_ASSIGN(Quote quote, quoter.of(asked_by_site(terms), now));
    if (!quote.runs) return fail(CauseCode::not_possible, quote.why);
    return quote;
}

SiteOffer OffersToPeers::of(const Quoter& quoter, const SiteGuests::Site& site, const SiteAsk& ask,
                            Nanos now) {
    constexpr Nanos kept_most = Nanos::from_s(30);
    const KeptOffers::Key of{site.name, ask.job};
    const JobTerms& t = ask.terms;
    SiteOffer offer;
    offer.number = ask.number;
    const auto no = [&](souk::Cause why) {
        offer.why = std::move(why);
        return offer;
    };
    const int64_t kept_for_others = reservations_.cpus_offered(of, now);
    const Status may = guests_.lets_in(site, ask.user, t, kept_for_others);
    if (!may) return no(souk::Cause(may.error()));
    const Job* const known = book_.find({site.name + ":" + ask.job.home, ask.job.seq});
    if (known && known->phase() != JobPhase::finished)
        return no({CauseCode::not_possible, "the job is here"});
    if (souk::Cause why = credit_.why_not(site.name, now); !why.empty()) return no(std::move(why));
    if (!ask.parts.empty()) {
        const int64_t left = site.terms->most_cpus - kept_for_others - guests_.cpus_of(site.name);
        return offer_rooms(quoter, site, ask, left, std::move(offer), now);
    }
    const auto quote = this->quote(quoter, t, now);
    if (!quote) return no({CauseCode::not_possible, quote.error().message});
    const Quote::Place& place = quote->places.front();
    offer.price = std::max({place.price, site.terms->least, site.leave.least});
    offer.speed = place.speed;
    const Nanos unix = context_.unix(now), kept = std::min(ask.hold, kept_most);
    Contract c;
    c.start = unix;
    c.end = unix + kept;
    c.node = place.node;
    c.price = offer.price;
    c.cpus = t.cpus;
    c.memory_mb = t.memory_mb;
    c.sold = unix;
    if (quote->others_first) offer.starts_in = reservations_.clearing_of(c);
    if (reservations_.keep_offered(of, terms_here(t), c, now)) offer.held_for = kept;
    return offer;
}

Result<std::vector<SiteRoom>> OffersToPeers::rooms(const Quoter& quoter, QuoteRequest asks,
                                                   const std::vector<SitePart>& parts,
                                                   Nanos now) const {
    for (const SitePart& part : parts)
        asks.components.push_back({part.cpus, part.memory_mb, {}, false});
    TRY_ASSIGN(const std::vector<Quoter::Room> found, quoter.rooms(asks, now));
    std::vector<SiteRoom> rooms;
    for (const Quoter::Room& room : found) {
        SiteRoom one;
        one.cpus = static_cast<int32_t>(std::min<int64_t>(room.cpus, rule::cpus_max));
        one.memory_mb = room.memory_mb;
        one.price = room.price;
        one.speed = std::max<int64_t>(1, room.node->record.report.speed);
        Contract c;
        c.node = room.node->id();
        c.cpus = one.cpus;
        c.memory_mb = one.memory_mb;
        if (room.others_first) one.starts_in = reservations_.clearing_of(c);
        rooms.push_back(one);
    }
    std::ranges::stable_sort(rooms, [](const SiteRoom& a, const SiteRoom& b) {
        return std::tuple(-a.speed, a.price) < std::tuple(-b.speed, b.price);
    });
    if (rooms.size() > site_rooms_max) rooms.resize(site_rooms_max);
    return rooms;
}

// No more than its site may have in all.
SiteOffer OffersToPeers::offer_rooms(const Quoter& quoter, const SiteGuests::Site& site,
                                     const SiteAsk& ask, int64_t cpus_most, SiteOffer offer,
                                     Nanos now) const {
    const auto found = rooms(quoter, asked_by_site(ask.terms), ask.parts, now);
    if (!found) {
        offer.why = {CauseCode::not_possible, found.error().message};
        return offer;
    }
    for (SiteRoom room : *found) {
        room.cpus = static_cast<int32_t>(std::min<int64_t>(room.cpus, cpus_most));
        if (room.cpus < 1) break;
        cpus_most -= room.cpus;
        room.price = std::max({room.price, site.terms->least, site.leave.least});
        offer.rooms.push_back(room);
    }
    if (offer.rooms.empty()) {
        offer.why = {CauseCode::not_possible, "no room for any of its components"};
        return offer;
    }
    offer.price = offer.rooms.front().price;
    offer.speed = offer.rooms.front().speed;
    return offer;
}

}  // namespace souk::market
