// SPDX-License-Identifier: GPL-2.0-or-later
// SiteMoves: which jobs of this site the markets may move to another one, or back, and what such a
// move must gain (docs/sites.md). A job that waits, be its image on a disk, goes where it gets a
// place; one that runs where the gain is more than the move costs (site_gain.hpp). It holds no
// data: LentJobs carries moves out, and keeps their bounds. Pure; part of Market.
#pragma once

#include <string>

#include "market/core/book.hpp"
#include "market/core/lent_jobs.hpp"
#include "market/core/market_context.hpp"
#include "market/core/offer_rounds.hpp"
#include "market/core/quote.hpp"
#include "market/core/run_times.hpp"
#include "market/core/site_offer.hpp"
#include "market/core/solver.hpp"

namespace souk::market {

class SiteMoves {
  public:
    SiteMoves(const MarketContext& context, const Solver& solver, const RunTimes& learned,
              LentJobs& lent)
        : context_(context), solver_(solver), learned_(learned), lent_(lent) {}

    // It has no place, wherever it is, and its user lets it go to other sites. A component of a
    // gang and a job with a place of its own stay at home.
    static bool could_wait(const Job& job);
    // The same of one that no other site has, so that it may be asked about.
    static bool waits(const Job& job);
    // It runs, and its user lets it move for a gain.
    static bool could_gain(const Job& job);
    // The same of one that is at its own site, or settled at another one.
    static bool may_gain(const Job& job);
    // Says what is wanted of an offer for it now.
    OfferWish wish(const Job& job, Nanos now) const;
    // It moves to that site, which has made this offer. Errors: it does not, as the offer is not
    // worth it now or something keeps the job.
    // `by_program`: the operator's program wants it (docs/filters.md), whatever it gains.
    Status go(Job& job, const std::string& site, const SiteOffer& offer, Nanos now,
              bool by_program);
    // It runs at another site, and moves to that place at its own.
    Status go_home(Job& job, const Quote::Place& place, Nanos now, bool by_program);

    // Says what its own site offers for that place, as another site would.
    static SiteOffer offer_of(const Result<Quote::Place>& place, uint64_t number);

    // Until when none of these sites is asked about the job, if it rests for all; else empty.
    Reason rests(const Job& job, const std::vector<std::string>& sites, Nanos now) const;
    // Why a round about a job that runs has led to no move, in the words of the first sites.
    static Reason no_gain(const OfferRounds::Round& round);
    // A site for people: its own, which has an empty name here, is a phrase.
    static std::string called(const std::string& site) {
        return site.empty() ? "its own site" : site;
    }

  private:
    static bool lets_go(const Job& job);
    SiteMove move_of(const Job& job, Nanos now) const;

    const MarketContext& context_;
    const Solver& solver_;
    const RunTimes& learned_;
    LentJobs& lent_;
};

}  // namespace souk::market
