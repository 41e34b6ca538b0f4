// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/site_moves.hpp"

#include <algorithm>

#include "market/core/job_rest.hpp"
#include "market/core/move_costs.hpp"

namespace souk::market {

// Stands before the gain where the operator's program has decided.
constexpr const char* by_reroute = "site_reroute says so; ";

bool SiteMoves::lets_go(const Job& job) {
    const JobReport& r = job.record.report;
    return !r.terms.sites->names.empty() && r.gang.empty() && r.terms.booking == Booking{} &&
           !r.address && of_site(job.id().home).site.empty();
}

bool SiteMoves::could_wait(const Job& job) {
    const JobReport& r = job.record.report;
    const bool is_still = r.phase == JobPhase::frozen && !r.in_place;
    return (r.phase == JobPhase::waiting || is_still) && lets_go(job);
}

bool SiteMoves::waits(const Job& job) {
    return could_wait(job) && job.record.loan->site.empty() &&
           of_site(job.record.report.where).site.empty();
}

bool SiteMoves::could_gain(const Job& job) {
    return job.phase() == JobPhase::running && !job.record.report.terms.sites->stays &&
           lets_go(job);
}

bool SiteMoves::may_gain(const Job& job) {
    const std::string& site = job.record.loan->site;
    return could_gain(job) && site == of_site(job.record.report.where).site &&
           (site.empty() || is_lent(job));
}

SiteMove SiteMoves::move_of(const Job& job, Nanos now) const {
    constexpr int64_t mb = 1'000'000, usual_mb = 256;
    const JobReport& r = job.record.report;
    const SolverOptions& options = solver_.options();
    SiteMove move;
    move.here.price = job.record.price;
    move.here.speed = std::max<int64_t>(1, lent_.speed_there(job));
    move.cheapest = r.terms.sites->cheapest;
    move.cpus = r.terms.cpus;
    move.bid = job.bid;
    move.rest = rest_of(job, &learned_, RestBand::usual, move.here.speed, now).at(move.here.speed);
    const int64_t held = std::max(r.stats.image_bytes, r.stats.memory_peak);
    const int64_t asked = (r.terms.memory_mb > 0 ? r.terms.memory_mb : usual_mb) * mb;
    const MoveCost cost = move_cost(std::min(held > 0 ? held : asked, memory_mb_max * mb), -1,
                                    options.link_bytes_per_s);
    move.pause = std::max(cost.pause, r.stats.last_move->pause);
    const __int128 carried = static_cast<__int128>(cost.bytes) * options.byte_cost_per_gb.micro;
    move.carried =
        Money{static_cast<int64_t>(std::min<__int128>(carried / 1'000'000'000, money_max.micro))};
    move.lately = lent_.left_lately(job, now);
    return move;
}

OfferWish SiteMoves::wish(const Job& job, Nanos now) const {
    const JobTerms& terms = job.record.report.terms;
    OfferWish wish;
    wish.cheapest = terms.sites->cheapest;
    wish.most = is_lent(job) ? terms.max_price : most_elsewhere(terms);
    wish.work = terms.runtime;
    if (job.phase() != JobPhase::running) return wish;
    wish.move = move_of(job, now);
    wish.work = Nanos{std::min(wish.move->rest, gain_horizon).ns / 100 * wish.move->here.speed};
    return wish;
}

Status SiteMoves::go(Job& job, const std::string& site, const SiteOffer& offer, Nanos now,
                     bool by_program) {
    const Reason because(ReasonCode::site_gain);
    if (waits(job))
        return lent_.go(job, site, Reason(because).with(Figure::cause, site + " has a place"), now);
    if (!may_gain(job) || is_lent(job))
        return fail("job " + job.id().text() + " does not move for a gain");
    const SiteGain gain = gain_of(move_of(job, now), stay_of(offer), site);
    if (!gain.pays && !by_program) return fail("job " + job.id().text() + ": " + gain.text(site));
    const std::string text = (by_program ? by_reroute : "") + gain.text(site);
    return lent_.go(job, site, Reason(because).with(Figure::cause, text), now);
}

Status SiteMoves::go_home(Job& job, const Quote::Place& place, Nanos now, bool by_program) {
    if (!may_gain(job) || !is_lent(job))
        return fail("job " + job.id().text() + " does not move home for a gain");
    const SiteMove move = move_of(job, now);
    const SiteGain gain = gain_of(move, {place.price, place.speed, {}}, "");
    const std::string text = (by_program ? by_reroute : "") + gain.text(called({}));
    if (!gain.pays && !by_program) return fail("job " + job.id().text() + ": " + text);
    return lent_.go_home(job, place.node, by_program ? std::nullopt : std::optional(move),
                         Reason(ReasonCode::site_gain).with(Figure::cause, text));
}

SiteOffer SiteMoves::offer_of(const Result<Quote::Place>& place, uint64_t number) {
    SiteOffer offer;
    offer.number = number;
    if (!place) {
        offer.why = souk::Cause(place.error());
    } else {
        offer.price = place->price;
        offer.speed = place->speed;
    }
    return offer;
}

Reason SiteMoves::rests(const Job& job, const std::vector<std::string>& sites, Nanos now) const {
    Nanos until = Nanos::never();
    for (const std::string& site : sites)
        until = std::min(until, lent_.rests_until(job, site, now));
    if (until == Nanos::never() || until <= context_.unix(now)) return {};
    return Reason(ReasonCode::site_rests).with(Figure::opens, until.ns / 1'000'000'000);
}

Reason SiteMoves::no_gain(const OfferRounds::Round& round) {
    constexpr size_t sites_shown = 3, bytes_shown = 100;
    std::string text;
    for (size_t i = 0; i < round.answers.size() && i < sites_shown; ++i) {
        const auto& [site, offer] = round.answers[i];
        const std::string who = called(site);
        if (i > 0) text += "; ";
        if (!offer)
            text += who + " did not answer";
        else if (!offer->why.empty())
            text += who + ": " + offer->why.substr(0, bytes_shown);
        else if (offer->price > round.wish.most)
            text += who + " asks " + format_money(offer->price);
        else if (round.wish.move)
            text += gain_of(*round.wish.move, stay_of(*offer), site).text(who);
    }
    return Reason(ReasonCode::site_no_gain).with(Figure::cause, text);
}

}  // namespace souk::market
