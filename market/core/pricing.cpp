// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/pricing.hpp"

#include <algorithm>

#include "market/core/pricing_integral.hpp"
#include "market/core/pricing_ranked.hpp"
#include "market/core/pricing_unit.hpp"

namespace souk::market {

namespace {
using Wide = __int128;
using SolverJob = Allocator::Job;
using Machine = Allocator::Machine;

bool is_running(const SolverJob& j) { return j.key().n != 0 && j.slot != Allocator::none; }

// Its owner, and those of the named resources that it has, take so much at least; never above its
// bid.
Money least_price(const Allocator& market, uint32_t j) {
    const SolverJob& job = market.jobs()[j];
    return std::min(market.reserve_at(market.machines()[job.slot], j), job.value);
}

}  // namespace

std::vector<Money> critical_prices(Allocator& market, bool by_user, uint64_t* steps) {
    std::vector<bool> done(market.jobs().size(), false);
    std::vector<Money> prices(market.jobs().size());
    if (market.ranks_price()) {
        prices = ranked_prices(market, done, by_user);
        unit_prices(market, prices, done, by_user);
    }
    const uint64_t placements = integral_prices(market, prices, done, by_user);
    if (steps)
        *steps = placements + static_cast<uint64_t>(std::count(done.begin(), done.end(), true));
    return prices;
}

std::vector<Money> critical_prices_by_integral(Allocator& market, bool by_user) {
    std::vector<Money> prices(market.jobs().size());
    integral_prices(market, prices, std::vector<bool>(market.jobs().size(), false), by_user);
    return prices;
}

std::vector<Money> first_prices(const Allocator& market) {
    std::vector<Money> prices(market.jobs().size());
    for (size_t j = 0; j < prices.size(); ++j) {
        const SolverJob& job = market.jobs()[j];
        if (!is_running(job)) continue;
        const auto& machine = market.machines()[job.slot];
        const int32_t top = market.speed_top();
        prices[j] = bounded_price(static_cast<Wide>(job.value.micro) *
                                      std::min(market.speed_at_slot(static_cast<uint32_t>(j)), top),
                                  top, machine, job);
        prices[j] = std::max(prices[j], least_price(market, static_cast<uint32_t>(j)));
    }
    return prices;
}

std::vector<Money> uniform_prices(const Allocator& market, int32_t k_permille) {
    Money bid = money_max, reserve;
    for (const SolverJob& j : market.jobs()) {
        if (!is_running(j)) continue;
        bid = std::min(bid, j.value);
        reserve = std::max(reserve, market.machines()[j.slot].spec.reserve);
    }
    const Wide part = static_cast<Wide>(bid.micro - reserve.micro) * k_permille / 1000;
    const Money one = reserve + Money{static_cast<int64_t>(part)};
    std::vector<Money> prices(market.jobs().size());
    for (size_t j = 0; j < prices.size(); ++j) {
        const SolverJob& job = market.jobs()[j];
        if (is_running(job))
            prices[j] = std::clamp(one, least_price(market, static_cast<uint32_t>(j)), job.value);
    }
    return prices;
}

Money worth_of(const Allocator& market, uint32_t job) {
    const SolverJob& j = market.jobs()[job];
    const int32_t top = market.speed_top();
    if (top == 0) return j.value;
    const int32_t speed = std::min(market.speed_at_slot(job), top);
    return Money{static_cast<int64_t>(static_cast<Wide>(j.value.micro) * speed / top)};
}

Surplus surplus_of(const Allocator& market, const std::vector<Money>& prices) {
    Wide consumers = 0, providers = 0;
    for (uint32_t j = 0; j < market.jobs().size(); ++j) {
        const SolverJob& job = market.jobs()[j];
        if (!is_running(job)) continue;
        consumers += static_cast<Wide>((worth_of(market, j) - prices[j]).micro) * job.cpus;
        providers +=
            static_cast<Wide>((prices[j] - market.machines()[job.slot].spec.reserve).micro) *
            job.cpus;
    }
    // a quarter of the range, so that sums of these stay in it too
    const auto money = [](Wide sum) {
        return Money{static_cast<int64_t>(std::clamp<Wide>(sum, INT64_MIN / 4, INT64_MAX / 4))};
    };
    return {money(consumers), money(providers), money(consumers) + money(providers)};
}

}  // namespace souk::market
