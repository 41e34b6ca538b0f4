// SPDX-License-Identifier: GPL-2.0-or-later
// Quoter: what jobs would get that are submitted now (quote.hpp), of a market as it is.
//
// A quote is the market's own decision on a copy of its solver with the jobs asked about: so it
// says what a submission in the same instant would bring, by the same code, and changes nothing.
// The copy costs about as much as a walk over all jobs.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "market/core/admission.hpp"
#include "market/core/book.hpp"
#include "market/core/gang_list.hpp"
#include "market/core/places.hpp"
#include "market/core/price_history.hpp"
#include "market/core/quote.hpp"
#include "market/core/solver.hpp"

namespace souk::market {

class Quoter {
  public:
    // A quote looks at these, which outlive it.
    struct View {
        const Book& book;
        const Places& places;
        const Solver& solver;
        const Admission& admission;
        const Admission::Jobs& jobs;
        const PriceHistory& prices;
        Nanos calendar;         // what to add to `now` for Unix time
        bool settling = false;  // not all nodes are back: no quote
        // Why a job that is free to run has no place by this solver.
        std::function<Reason(const Job&, const Solver&)> why_waiting;
    };
    explicit Quoter(View view) : view_(std::move(view)) {}

    // Errors: no quote can be given now, and why.
    Result<Quote> of(const QuoteRequest& request, Nanos now) const;
    // Room that its components would get at its price, of each machine: of it only, so that several
    // of them may be there, and no more in all than they need. Errors: none can be said now.
    struct Room {
        const Node* node = nullptr;
        int64_t cpus = 0, memory_mb = 0;
        Money price;
        bool others_first = false;
    };
    Result<std::vector<Room>> rooms(const QuoteRequest& request, Nanos now) const;

  private:
    Status may_quote(const QuoteRequest& q) const;
    void add_rooms(const QuoteRequest& q, Nanos now, std::map<const Node*, Room>& rooms) const;
    struct Trial;
    // Errors: the solver takes no such jobs.
    Status try_out(const QuoteRequest& q, Money bid, Nanos now, Trial& trial) const;
    Result<Quote> quote_of(const QuoteRequest& q, Money bid, Nanos now) const;
    Reason why_waits(const std::vector<Job>& components) const;
    bool all_run(const QuoteRequest& q, Money bid, Nanos now) const;
    std::optional<Money> least_bid_for_all(const QuoteRequest& q, const Quote& quote,
                                           Nanos now) const;

    View view_;
};

}  // namespace souk::market
