// SPDX-License-Identifier: GPL-2.0-or-later
// What a job bids by its user's strategy (srun -s NAME), of what the market tells everybody: pure
// functions of its terms, of what it has spent, of the time that is left, and of the prices of the
// last day. No bid is above its maximum price, or below a micro-unit.
//
//   truthful   (also "fixed", and any other word) its maximum price
//   pace       what is left of its budget lasts until its finish (pace.hpp)
//   deadline:N the least bid with which a job of N seconds on a machine of speed 100 would have
//              been done in time with a chance of 95 %, had the last day come again, whenever in it
//              it were now; its maximum price if none would
//   patient    the price that a place has cost in the middle of the last day, less a hundredth: it
//              runs when places are cheaper than usual. In the last tenth of its time, if it has a
//              finish, its maximum price.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "market/core/messages.hpp"
#include "market/core/price_history.hpp"

namespace souk::market {

enum class StrategyKind : uint8_t { truthful, pace, deadline, patient };
struct Strategy {
    StrategyKind kind = StrategyKind::truthful;
    Nanos runtime;  // deadline: of the whole job at speed 100
    bool operator==(const Strategy&) const = default;
};
// Of the terms: `pace` is a flag of its own.
Strategy strategy_of(const JobTerms& terms);
// As srun takes it: truthful, fixed, pace, patient, deadline:SECONDS. Errors: it is none.
Result<Strategy> parse_strategy(std::string_view text);

// What a strategy knows beside its terms.
struct StrategyView {
    Money spent;                         // so far
    Nanos ran;                           // so far
    Nanos left;                          // until its finish; 0 or below: it has none, or it is over
    std::span<const PriceRecord> hours;  // of the last day, the oldest first
};
Money strategy_bid(const JobTerms& terms, const StrategyView& view);
// How long that bid is good for; never: until its terms change.
Nanos strategy_step(const JobTerms& terms, Nanos left);

inline constexpr double deadline_chance = 0.95;
// The chance that so much work at speed 100 is done within `left` with this bid.
double chance_in_time(std::span<const PriceRecord> hours, Money bid, Nanos work, Nanos left);
// What a place has cost in the middle of these hours; nullopt: nothing is known.
std::optional<Money> usual_price(std::span<const PriceRecord> hours);

}  // namespace souk::market
