// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/sim/reserve_trial.hpp"

#include <algorithm>
#include <map>

#include "market/core/reserve_learner.hpp"

namespace souk::sim {
namespace {

constexpr int64_t trial_hour_s = 3'600, hour_minutes = 60;

}  // namespace

std::vector<Money> hourly_prices(std::span<const ReplayJob> jobs, const Schedule& schedule,
                                 const ReplayTerms& terms, int64_t cpus) {
    std::vector<Money> prices;
    if (jobs.empty()) return prices;
    std::vector<uint32_t> by_end(jobs.size());
    for (uint32_t i = 0; i < jobs.size(); ++i) by_end[i] = i;
    std::sort(by_end.begin(), by_end.end(),
              [&](uint32_t a, uint32_t b) { return schedule.end_s[a] < schedule.end_s[b]; });
    std::map<Money, int64_t, std::greater<>> wanted;  // CPUs, by bid
    size_t next = 0, ended = 0;
    for (int64_t now = jobs[0].submit_s; now <= schedule.end_s[by_end.back()];
         now += trial_hour_s) {
        for (; next < jobs.size() && jobs[next].submit_s <= now; ++next)
            wanted[terms.value[next]] += jobs[next].procs;
        for (; ended < jobs.size() && schedule.end_s[by_end[ended]] <= now; ++ended) {
            const uint32_t job = by_end[ended];
            const auto it = wanted.find(terms.value[job]);
            if ((it->second -= jobs[job].procs) == 0) wanted.erase(it);
        }
        int64_t taken = 0;
        Money price;
        for (const auto& [bid, procs] : wanted) {
            taken += procs;
            if (taken < cpus) continue;
            price = bid;
            break;
        }
        prices.push_back(price);
    }
    return prices;
}

ReserveOutcome try_reserve(std::span<const Money> prices, Money floor, uint64_t seed, double bonus,
                           size_t window_h) {
    ReserveOutcome outcome;
    outcome.hours = prices.size();
    market::ReserveLearner learner(floor, seed, bonus), all(floor, seed);
    for (size_t hour = 0; hour < prices.size(); ++hour) {
        const Money asked = learner.price();
        if (prices[hour] >= asked && prices[hour] > Money{})
            outcome.asked += static_cast<double>(asked.micro) / 1e6;
        if (prices[hour] >= floor) outcome.all += static_cast<double>(prices[hour].micro) / 1e6;
        learner.saw(prices[hour], hour_minutes);
        all.saw(prices[hour], hour_minutes);
        if (hour >= window_h) learner.saw(prices[hour - window_h], -hour_minutes);
    }
    outcome.fixed = all.best().revenue;
    outcome.fixed_price = all.best().price;
    return outcome;
}

}  // namespace souk::sim
