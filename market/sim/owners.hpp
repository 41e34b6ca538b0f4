// SPDX-License-Identifier: GPL-2.0-or-later
// Owners of a simulated market, and how they ask: what they said (fixed), or what follows of the
// market's prices (`pvdctl set price auto`: market/core/reserve_learner.hpp). What a provider's
// reserve says is what lending costs its owner, and the least that he asks. Pure and seeded.
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

// Of which kinds the owners are: each draws one, all as likely.
struct OwnerMix {
    std::string name;
    std::vector<Asks> of;
};
// `fixed`, `auto` or `fixed+auto`. Errors: no owner asks so.
Result<OwnerMix> parse_owner_mix(const std::string& name);
// Of each provider; the same in every mix with the same seed.
std::vector<Asks> asks_of(size_t providers, const OwnerMix& mix, uint64_t seed);

// What an owner who asks by the market's prices asks from hour to hour. While his machine is free
// his own price may be what a place costs: an hour in which it cost no more teaches him nothing.
class AutoPrice {
  public:
    AutoPrice(Money floor, uint64_t seed) : learner_(floor, seed), asked_(floor) {}
    // One more place on a machine as fast cost that during the last hour. Returns what he asks now.
    Money saw(Money price);
    Money asked() const { return asked_; }

  private:
    market::ReserveLearner learner_;
    Money asked_;
};
// At the greatest speed of the offers that is not above `speed`; nullopt: no bid gets a place.
std::optional<Money> price_at(std::span<const market::Offer> offers, int32_t speed);

struct ByOwner {
    Asks asks{};
    uint32_t owners = 0;
    double earned = 0;   // for a CPU-hour that was offered, units
    double surplus = 0;  // likewise, above what lending costs him
    double used = 0;     // part of what was offered
};
// Of the kinds that there are, in the order of the enum.
std::vector<ByOwner> by_owner(std::span<const SimProvider> providers, std::span<const Asks> asks,
                              const RunOutcome& outcome);

}  // namespace souk::sim
