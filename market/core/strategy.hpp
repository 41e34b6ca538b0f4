// SPDX-License-Identifier: GPL-2.0-or-later
// Strategies: what a job bids (srun -s NAME). Each is a pure function of the job's own terms, of
// what it has cost and done, and of the prices that the market tells everybody (price_history.hpp);
// none sees what others bid. All bid at most the job's maximum price.
//
// truthful  its maximum price. Prices are critical payments, so with a price that says what an hour
//           is worth to its user no other bid does better by itself (docs/market.md).
// pace      what is left of its budget, spread over the time that is left: while it runs for less
//           it saves, and may bid more later; while it waits its bid rises.
// deadline  the bid with the least expected cost of those with which the prices of the last day
//           would have had it done by its time from at least 95 of 100 minutes of that day on.
//           Where none is so sure, its maximum price; in_time says how sure that is.
// patient   the usual price: the median over the last week of the least price of a place.
#pragma once

#include <map>
#include <optional>
#include <string_view>

#include "market/core/messages.hpp"
#include "market/core/price_history.hpp"

namespace souk::market {

enum class Strategy : uint8_t { truthful, pace, deadline, patient };
const char* to_string(Strategy strategy);
// `fixed` is another name of truthful. nullopt: there is no such strategy.
std::optional<Strategy> strategy_named(std::string_view name);
// The strategy of a job. It is truthful where its own is not known here, or lacks what it needs:
// pace a budget and a finish, deadline a finish and a runtime.
Strategy strategy_of(const JobTerms& terms);

using PriceRows = std::map<int64_t, PriceRecord>;  // by minute

// A strategy looks at this.
struct Standing {
    Money spent;
    Nanos left;                  // until its finish, from now
    Nanos done;                  // of its work: run time on a standard machine (speed 100)
    int64_t minute = 0;          // now, as PriceRecord::minute
    std::optional<Money> usual;  // usual_price() of now
};

struct Bid {
    Money price;                      // per CPU-hour, from a micro-unit to the maximum price
    Nanos good_for = Nanos::never();  // then it is reckoned anew
    std::optional<double>
        in_time;  // deadline: the part of the last day from which it is done in time
};
inline constexpr double deadline_chance = 0.95;

Bid bid_of(const JobTerms& terms, const Standing& job, const PriceRows& prices);

// The parts, which bid_of() puts together.

// So that what is left of the budget lasts until the finish, `left` from now.
Money paced_bid(const JobTerms& terms, Money spent, Nanos left);
// How long a bid is good for with so much time left: a hundredth of it, between a second and a
// minute.
Nanos pace_step(Nanos left);
// With so much work (run time on a standard machine) and time left, and the rows from that minute
// on. Costs 33 walks over these at most. nullopt: there are no rows.
std::optional<Bid> deadline_bid(const JobTerms& terms, Nanos work, Nanos left,
                                const PriceRows& prices, int64_t from_minute);
// The median of the least price of a place over the minutes of the rows from that one on; minutes
// without a place count as dearer than all. nullopt: there is none, or most are such.
std::optional<Money> usual_price(const PriceRows& prices, int64_t from_minute);
inline constexpr int64_t usual_minutes = 7 * 1'440, deadline_minutes = 1'440;

}  // namespace souk::market
