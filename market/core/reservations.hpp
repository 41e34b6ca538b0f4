// SPDX-License-Identifier: GPL-2.0-or-later
// Reservations: places that are sold ahead of their time (srun --start, --for), and jobs that run
// inside the place of another one (srun --in).
//
// A job that asks for a span gets a contract: a node, from a moment to another, at a price per
// CPU-hour that does not change. All components of a gang get theirs together, or none does. The
// node is one that is on the market all that time as far as its owner's frames say, and has that
// room beside all other contracts and beside jobs that cannot leave it; nobody says how long
// anything else runs there, because whatever runs there can be moved or frozen. Of these nodes it
// is the one with the least price for its speed.
//
// Named resources are sold so, too. A device does not leave its job, so one that is sold ahead is
// given to nobody who may have it still when its time comes (ResourceBook::is_kept), and whoever
// was sold named resources ends when the time is over (HomeTimeLimits).
//
// The price is the mean, over the hours of the span, of what a place on such a machine is likely to
// cost (PriceForecast) or what the owner asks then, whichever is more; within the next hour it is
// at least what the node's next place costs now. It does not depend on what the job bids, which
// only says whether the place is bought.
//
// Some time before the start the solver is told that the job is there, so that the room is cleared;
// that time is as long as the memory of those who may have to leave takes to be carried. At the
// start the job gets its order, and until the end it pays its price and loses its place to no bid.
// Then it goes on at the market's price, for its bid. A node that is gone breaks the contract:
// another one with room takes its place at the same price if its owner asks no more; without one
// the job competes with its bid until there is. Only time in which it runs is paid.
//
// A job that runs inside another one's place takes no room of the market and pays nothing: the
// other one pays. It goes where that one goes, and stands still while that one does not run.
//
// Pure; part of Market. It owns which jobs have booked; contracts are kept in their records.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "market/core/bidding.hpp"
#include "market/core/book.hpp"
#include "market/core/gang_list.hpp"
#include "market/core/inside_places.hpp"
#include "market/core/kept_offers.hpp"
#include "market/core/market_context.hpp"
#include "market/core/places.hpp"
#include "market/core/price_forecast.hpp"
#include "market/core/promises.hpp"
#include "market/core/room_claims.hpp"
#include "market/core/settling.hpp"
#include "market/core/solver.hpp"
#include "market/core/work_list.hpp"

namespace souk::market {

class Reservations : private PlacesAhead {
  public:
    static constexpr Nanos clear_least = Nanos::from_s(2), clear_most = Nanos::from_s(300);
    static constexpr Nanos ahead_most = Nanos::from_s(366 * 86'400),
                           span_most = Nanos::from_s(31 * 86'400);
    // Those to whom nothing could be sold are asked about again, so many at once.
    static constexpr Nanos retry_after = Nanos::from_s(10);
    static constexpr size_t asked_at_once = 64;
    // The search for an earliest place looks at so much.
    static constexpr size_t search_most = 50'000;

    Reservations(const MarketContext& context, Book& book, Places& places, const Solver& solver,
                 const Bidding& bids, GangList& gangs, const Settling& settling, RoomClaims& rooms,
                 WorkList& work, const RunTimes& learned)
        : context_(context),
          book_(book),
          places_(places),
          solver_(solver),
          bids_(bids),
          gangs_(gangs),
          settling_(settling),
          rooms_(rooms),
          work_(work),
          promises_(context, book, learned, *this),
          inside_(book, places, gangs) {}

    // A job was reported or loaded.
    void note(const Job& job);
    // A node came, went or offers something else.
    void changed() { changed_ = nodes_changed_ = true; }
    // Sells what is asked for, and sees what time has changed. To be called before each decision.
    void look(Nanos now);
    // When time alone asks for look().
    Nanos next() const { return changed_ ? Nanos{0} : next_; }
    // The jobs that have booked or run inside others.
    const std::set<JobId>& booked() const { return booked_; }
    // Says what a job with these terms, or such components, could be promised now. They have no
    // records here.
    PromiseOffer promise_offer(const std::vector<const Job*>& all, Nanos now) const;
    // The market has been started: of gangs also components that have ended may wait for a promise.
    void resume() {
        for (const auto& [id, job] : book_.jobs()) promises_.list(job);
    }
    // Keeps the room of that contract for a job of another site, to which it was offered: nothing
    // is sold there that needs it. Jobs that can leave may use it. False: there is no such room.
    bool keep_offered(const KeptOffers::Key& job, const JobTerms& terms, const Contract& c,
                      Nanos now);
    void drop_offered(const KeptOffers::Key& job) { kept_.drop(job); }
    // CPUs that are so kept (KeptOffers::cpus_beside).
    int64_t cpus_offered(const KeptOffers::Key& job, Nanos now) const {
        return kept_.cpus_beside(job, context_.unix(now));
    }
    // So long it takes until a job can begin there.
    Nanos clearing_of(const Contract& contract) const;
    // How often promises were looked at, to see what their jobs have done.
    uint64_t followed() const { return followed_; }
    size_t looked_at() const { return looked_at_; }
    std::vector<JobId> take_missed() { return promises_.take_missed(); }

  private:
    using Pick = PlacePick;
    using Span = BookedSpan;

    static bool is_asked(const Job& job);
    static bool covers(const Contract& contract, const Job& job, Nanos unix);
    void forget_ended();
    void list_sold() const;
    void list_ahead();
    void see_contract(Job& job, bool is_fresh, Nanos now);
    PromiseEnd why_lost(const Job& job, const Contract& c, const Node* node) const;
    void keep_place(Job& job, Contract& c, Nanos unix);
    void ask_all(Nanos now);
    bool is_too_much(const std::vector<const Job*>& all, Nanos unix) const;
    void ask(const JobId& id, Nanos unix, std::set<std::string>& gangs);
    void ask_promise(std::vector<Job*> all, Nanos unix);
    void follow_promise(Job& job, bool is_fresh, Nanos now);
    // The span lies in the hours of the job's user.
    bool is_in_hours(const Job& job, Span span) const;
    std::optional<Money> price_at(const Job& job, const Node& node, Span span,
                                  const PlacePicks& beside) const override;
    PlacePicks places_for(const std::vector<const Job*>& all, Span span,
                          int64_t speed_least) const override {
        return picks_of(all, span, true, speed_least);
    }
    void place_at(Job& job, const Node* node) override;
    Money asked_at(const Job& job, const Node& node, Span span) const override;
    std::vector<Nanos> moments_after(Nanos from) const override;
    void search_begins() const override { search_from_ = looked_at_; }
    bool search_goes_on() const override { return looked_at_ - search_from_ < search_most; }
    Nanos now() const { return unix_ - context_.calendar; }
    PlacePicks picks_of(const std::vector<const Job*>& all, Span span, bool for_any_price,
                        int64_t speed_least = 0) const;
    bool has_room(const Job& job, const Node& node, Span span, const PlacePicks& beside) const;
    static bool is_open(const ProviderReport& report, Span span);
    static Money most_asked(const ProviderReport& report, Span span);
    PlacePicks siblings(const Job& job) const;
    Money price_of(const Node& node, Span span, Nanos unix,
                   const std::vector<const Job*>& all) const;
    Reason why_not_sold(const std::vector<const Job*>& all, Span span) const;
    std::optional<Nanos> earliest(const std::vector<const Job*>& all, Span span) const;
    void sell(const PlacePicks& picks, Span span, Nanos unix);
    void put(Job& job, Booked booked, const NodeName& on, Reason why = {});

    const MarketContext& context_;
    Book& book_;
    Places& places_;
    const Solver& solver_;
    const Bidding& bids_;
    GangList& gangs_;
    const Settling& settling_;
    RoomClaims& rooms_;
    WorkList& work_;
    Promises promises_;
    InsidePlaces inside_;

    std::set<JobId> booked_, fresh_;
    KeptOffers kept_;
    JobId asked_last_;
    size_t asked_ = 0;  // of the asked_at_once of the present round
    Nanos retry_at_{}, ahead_told_{};
    bool changed_ = false, nodes_changed_ = false;
    uint64_t followed_ = 0;
    std::map<JobId, Nanos> followed_until_;  // of promises: then they are followed again, Unix time
    Nanos next_ = Nanos::never();
    std::map<std::string, Nanos> gang_followed_;  // when that was last, Unix time
    // of the present look()
    // contracts, hours and nodes, each time anew; of that, before the present search
    mutable size_t looked_at_ = 0, search_from_ = 0;
    mutable std::map<NodeName, std::vector<const Job*>> sold_;  // contracts that are not over
    mutable std::optional<PriceForecast> forecast_;             // once it is asked for
    mutable Nanos unix_;
};

}  // namespace souk::market
