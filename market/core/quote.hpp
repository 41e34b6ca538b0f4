// SPDX-License-Identifier: GPL-2.0-or-later
// A quote: what would become of a job if it were submitted now (Market::quote), and what the prices
// of the last day say about it. Nothing of it binds anybody. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "market/core/market_state.hpp"
#include "market/core/messages.hpp"
#include "market/core/price_history.hpp"
#include "market/core/types.hpp"

namespace souk::market {

struct QuoteRequest {
    NodeName home;  // empty: it is of another site
    uint32_t uid = 0;
    JobTerms terms;
    int32_t jobs = 1;      // so many of it at once, at most quote_jobs_max
    bool compare = false;  // Quote::strategies
    std::string command;   // of a job that wants a promise
    // The components of the job, in their order; empty: it is a single one. `budget` of the
    // terms is of all together.
    struct Component {
        int32_t cpus = 1;
        int64_t memory_mb = 0;
        NodeName node;  // the only one for it; empty: any
        bool optional = false;
    };
    std::vector<Component> components = {};
    GangLayout layout = {};
};
inline constexpr size_t quote_components_max = 1'024;
// Makes the job, or all its components, as they would be submitted now (`unix`) with these numbers
// of their ids.
std::vector<Job> guests_of(const QuoteRequest& request, User& user, uint64_t first, Nanos unix);
inline constexpr int32_t quote_jobs_max = 1'000;

// Says what the prices of some minutes, one after the other and then again from the first one,
// would have meant for a job that runs at the greatest speed that its bid reaches, waits or is
// frozen where it reaches none, and pays what is needed there. Every minute is as likely as another
// to be the one in which it begins; of them only those count that are as it is now (with a place,
// or without).
struct Outlook {
    int64_t minutes = 0;  // of prices
    // of them, the part at which its bid would have had a place
    double place_share = 0;
    // chance of being frozen, once it runs, before its run time is over
    std::optional<double> frozen;
    // expected, in all; as the following only if there is a run time
    std::optional<Money> cost;
    std::optional<Nanos> span;      // until its end, expected
    std::optional<double> in_time;  // chance that this is not more than `finish`
};

// `runtime`: as above; 0: not known, then `frozen` is that of an hour. `waits`: it has no place
// now.
Outlook outlook(const std::map<int64_t, PriceRecord>& rows, int64_t from_minute, Money bid,
                int32_t cpus, Nanos runtime, Nanos finish, bool waits);

struct Quote {
    // Jobs of those asked about that would be there at one price.
    struct Place {
        NodeName node;
        int64_t speed = 0;  // of that
        Money price;        // what each would pay per CPU-hour
        int32_t jobs = 0;
        int64_t cpus = 0;  // of all of them
    };
    std::vector<Place> places;  // of those that would be given a place at once; the fastest first
    int32_t running = 0;        // how many these are
    bool runs = false;          // all of them
    bool others_first = false;  // when others have left some place
    Money bid;                  // the maximum price, or less by its strategy
    std::string why;            // why the first that waits does
    std::string code;           // of `why` (reason.hpp)
    std::optional<Money>
        // that would get all a place at once, at most `bid` if that does (of several jobs: a whole
        // number of units); nullopt: no bid would
        winning_bid;
    size_t displaced = 0;               // jobs that would be frozen for them
    Money rate;                         // what those that run would pay an hour, all together
    std::optional<Money> cost;          // if all run, with a run time: of all, at the prices now
    std::optional<Nanos> span;          // until the last ends there
    std::optional<Nanos> budget_lasts;  // if all run: how long that of each at the prices now
    Outlook day;                        // of one of them by the prices of the last day
    // The same of each strategy that the terms have all for, if that was asked: of what it bids
    // now, as if it went on to bid that.
    struct Compared {
        std::string strategy;
        Money bid;
        Outlook day;
    };
    std::vector<Compared> strategies;
    // With JobTerms::booking's promise: the answer (promises.hpp).
    struct Promise {
        bool can = false;
        Nanos latest_start, deadline;       // Unix time
        std::map<NodeName, int32_t> nodes;  // and how many components are on each
        Money price, cost_most;
        bool learned = false;
        std::string why, code;              // it cannot
        std::optional<Money> price_for_it;  // and what could be promised
        std::optional<Nanos> earliest;      // Unix time
    };
    std::optional<Promise> promise;
};

}  // namespace souk::market
