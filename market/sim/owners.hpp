// SPDX-License-Identifier: GPL-2.0-or-later
// This file holds the owners of a simulated market, and how they ask: always the price that they
// said (fixed), or one that follows the market's prices (`pvdctl set price auto`:
// market/core/reserve_learner.hpp). A provider's reserve is what lending costs its owner, and the
// least that he asks. Everything here is pure and seeded.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernel/base/result.hpp"
#include "market/core/price_history.hpp"
#include "market/core/reserve_learner.hpp"
#include "market/sim/market_files.hpp"

namespace souk::sim {

struct RunOutcome;

enum class Asks : uint8_t { fixed, automatic };
const char* to_string(Asks asks);  // fixed, auto

// The kinds of owners in a run. Each owner draws one of them, all equally likely.
struct OwnerMix {
    std::string name;
    std::vector<Asks> of;
};
// `fixed`, `auto` or `fixed+auto`. Errors: no owner asks so.
Result<OwnerMix> parse_owner_mix(const std::string& name);
// Draws how the owner of each provider asks. Every mix draws by the same random numbers, so two
// mixes with one seed differ only where they must.
std::vector<Asks> asks_of(size_t providers, const OwnerMix& mix, uint64_t seed);

// An owner who follows the market's prices learns once an hour what to ask. While his machine is
// free, his own price may be what a place costs: an hour in which places cost no more than that
// teaches him nothing.
class AutoPrice {
  public:
    AutoPrice(Money floor, uint64_t seed) : learner_(floor, seed), asked_(floor) {}
    // Notes that one more place on a machine as fast cost that much during the last hour. Returns
    // the price that he asks now.
    Money saw(Money price);
    Money asked() const { return asked_; }

  private:
    market::ReserveLearner learner_;
    Money asked_;
};
// The price of a place at the greatest speed of the offers that is not above `speed`; nullopt: no
// bid gets a place.
std::optional<Money> price_at(std::span<const market::Offer> offers, int32_t speed);

struct ByOwner {
    Asks asks{};
    uint32_t owners = 0;
    double earned = 0;   // for a CPU-hour that was offered, units
    double surplus = 0;  // for the same CPU-hour, above what lending costs him
    double used = 0;     // part of what was offered
};
// Sums the outcome by the ways of asking that occur, in the order of the enum.
std::vector<ByOwner> by_owner(std::span<const SimProvider> providers, std::span<const Asks> asks,
                              const RunOutcome& outcome);

}  // namespace souk::sim
