// SPDX-License-Identifier: GPL-2.0-or-later
// Explain: why each job that does not simply run is where it is, and why a node takes no jobs
// (reason.hpp); and what the market holds of a job or a node, for people who look into a running
// daemon. It also brings the comments of waiting jobs up to date (comment_rounds.hpp). Pure; part
// of Market.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "market/core/admission.hpp"
#include "market/core/allocation.hpp"
#include "market/core/bidding.hpp"
#include "market/core/book.hpp"
#include "market/core/comment_rounds.hpp"
#include "market/core/equal_jobs.hpp"
#include "market/core/gang_list.hpp"
#include "market/core/market_context.hpp"
#include "market/core/notes.hpp"
#include "market/core/places.hpp"
#include "market/core/prices_in_force.hpp"
#include "market/core/settling.hpp"
#include "market/core/solver.hpp"

namespace souk {
class JsonWriter;
}

namespace souk::market {

class Explain final : public Notes::Texts {
  public:
    Explain(const MarketContext& context, Book& book, const Places& places, const Solver& solver,
            const Allocation& allocation, const EqualJobs& equals, const GangList& gangs,
            const Bidding& bids, const PricesInForce& price_rounds, const Settling& settling,
            Notes& notes)
        : context_(context),
          book_(book),
          places_(places),
          solver_(solver),
          allocation_(allocation),
          equals_(equals),
          gangs_(gangs),
          bids_(bids),
          prices_(price_rounds),
          settling_(settling),
          notes_(notes) {}

    // Why the job is where it is, as of now.
    Reason reason(const Job& job) const override;
    // All that is to be said of it, the first as above: what it holds that cannot move, what failed
    // last, which nodes could not take it, when it may start.
    std::vector<Reason> reasons(const Job& job, Nanos now) const;
    // Why the node takes none, or from which bid on it takes one of one CPU.
    Reason reason(const Node& node, Nanos now) const;
    // Why a job that is free to run has no place by this solver.
    Reason why_waiting(const Job& job, const Solver& solver) const;
    // "off", "lost", "disconnected", "unable", "busy" or "free".
    const char* provider_state(const Node& node, Nanos now) const;
    // Brings the comments of jobs that wait up to date, because what would win a place changes with
    // every bid.
    void refresh_comments(Nanos now);
    Nanos next_call() const { return comment_rounds_.next_call(); }
    void changed() { comment_rounds_.changed(); }

    // Keys and values of an open JSON object (tools/common/replies.md).
    void describe(const Job& job, Nanos now, JsonWriter& j) const;
    void describe(const Node& node, Nanos now, JsonWriter& j) const;

    // -- Notes::Texts

    const Node* home_of(const Job& job) const override { return book_.home_of(job); }
    ProviderNote prices(const Node& node) const override { return prices_.note_of(node); }

  private:
    Reason why_booked(const Job& job) const;
    Reason why_pinned(const Job& job) const;
    Reason why_limited(const Job& job) const;
    Reason why_stopped(const Job& job) const;
    static Reason why_unsure(const Job& job);
    std::optional<Money> starting_bid(const Job& job, const Solver& solver) const;
    bool would_beat_own(const Job& job, Money bid) const;

    const MarketContext& context_;
    Book& book_;
    const Places& places_;
    const Solver& solver_;
    const Allocation& allocation_;
    const EqualJobs& equals_;
    const GangList& gangs_;
    const Bidding& bids_;
    const PricesInForce& prices_;
    const Settling& settling_;
    Notes& notes_;
    CommentRounds comment_rounds_;
};

}  // namespace souk::market
