// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/sim/owners.hpp"

#include <algorithm>

#include "kernel/base/rng.hpp"
#include "market/sim/market_run.hpp"

namespace souk::sim {

const char* to_string(Asks asks) { return asks == Asks::fixed ? "fixed" : "auto"; }

Result<OwnerMix> parse_owner_mix(const std::string& name) {
    using enum Asks;
    if (name == "fixed") return OwnerMix{name, {fixed}};
    if (name == "auto") return OwnerMix{name, {automatic}};
    if (name == "fixed+auto") return OwnerMix{name, {fixed, automatic}};
    return fail("'" + name + "' is none of fixed, auto and fixed+auto");
}

std::vector<Asks> asks_of(size_t providers, const OwnerMix& mix, uint64_t seed) {
    std::vector<Asks> all;
    Rng rng(seed ^ 0x61736b73);
    for (size_t p = 0; p < providers; ++p)
        all.push_back(mix.of[static_cast<size_t>(rng.unit() * static_cast<double>(mix.of.size()))]);
    return all;
}

Money AutoPrice::saw(Money price) {
    if (price > asked_) {
        learner_.saw(price, 60);
        asked_ = learner_.price();
    }
    return asked_;
}

std::optional<Money> price_at(std::span<const market::Offer> offers, int32_t speed) {
    const market::Offer* best = nullptr;
    for (const market::Offer& o : offers) {
        if (o.speed > speed || !o.price) continue;
        if (!best || o.speed > best->speed || (o.speed == best->speed && *o.price < *best->price))
            best = &o;
    }
    return best ? best->price : std::nullopt;
}

std::vector<ByOwner> by_owner(std::span<const SimProvider> providers, std::span<const Asks> asks,
                              const RunOutcome& outcome) {
    struct Sums {
        double earned = 0, surplus = 0, used_s = 0, offered_s = 0;
    };
    std::map<Asks, std::pair<ByOwner, Sums>> all;
    for (size_t p = 0; p < providers.size(); ++p) {
        auto& [row, sums] = all[asks[p]];
        ++row.owners;
        const ProviderOutcome& o = outcome.providers[p];
        sums.earned += static_cast<double>(o.earned.micro_s) / 1e6;
        sums.surplus += static_cast<double>(o.surplus.micro_s) / 1e6;
        sums.used_s += static_cast<double>(o.used_cpu_s);
        const int64_t until = providers[p].end_s < 0
                                  ? outcome.totals.end_s
                                  : std::min(providers[p].end_s, outcome.totals.end_s);
        sums.offered_s += static_cast<double>(std::max<int64_t>(0, until - providers[p].start_s) *
                                              providers[p].cpus);
    }
    std::vector<ByOwner> rows;
    for (auto& [kind, found] : all) {
        auto& [row, sums] = found;
        row.asks = kind;
        if (sums.offered_s > 0) {
            row.earned = sums.earned / sums.offered_s;
            row.surplus = sums.surplus / sums.offered_s;
            row.used = sums.used_s / sums.offered_s;
        }
        rows.push_back(row);
    }
    return rows;
}

}  // namespace souk::sim
