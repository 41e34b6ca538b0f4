// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/sim/run_rates.hpp"

#include <algorithm>
#include <cmath>

namespace souk::sim {

void RunRates::grow(int64_t now_s, int64_t t, RunOutcome& out) {
    for (const Rate& rate : rates_) {
        const Standing is = standing_(rate.job);
        if (!is.runs || is.since_s >= t) continue;
        const int64_t cpus = specs_[rate.job].cpus, advanced = t - std::max(now_s, is.since_s);
        const Money price = charged(rate, advanced);
        out.jobs[rate.job].paid.add(price, cpus, advanced);
        out.totals.consumers.add(rate.worth - price, cpus, advanced);
        out.totals.providers.add(price - rate.reserve, cpus, advanced);
        ProviderOutcome& lent = out.providers[rate.provider];
        lent.earned.add(price, cpus, advanced);
        lent.surplus.add(price - rate.reserve, cpus, advanced);
        lent.used_cpu_s += cpus * advanced;
        if (!is.at_home) out.jobs[rate.job].files_mb += specs_[rate.job].files_mb_per_s * advanced;
    }
    out.totals.envy.add(envy_, 1, t - now_s);
}

// The mean of what a job is charged over the next `span` seconds, at a price that stays.
Money RunRates::charged(const Rate& rate, int64_t span) {
    if (options_.price_window_s == 0) return rate.price;
    const auto window = static_cast<double>(options_.price_window_s);
    const auto price = static_cast<double>(rate.price.micro);
    double& average = averages_.try_emplace(rate.job, price).first->second;
    const double kept = std::exp(-static_cast<double>(span) / window), off = average - price;
    const double mean = price + off * (1 - kept) * window / static_cast<double>(span);
    average = price + off * kept;
    return std::clamp(Money{std::llround(mean)}, std::min(rate.reserve, rate.worth), rate.worth);
}

void RunRates::agree(const market::Solver& solver) {
    rates_.clear();
    for (const market::Payment& payment : solver.payments()) {
        const auto i = static_cast<uint32_t>(payment.job.n - 1);
        const Money worth = worth_of(solver, i);
        const int64_t goes_on = standing_(i).goes_on;
        rates_.push_back({i, static_cast<uint32_t>(payment.provider.n - 1), payment.price,
                          Money{worth.micro / 1000 * goes_on + worth.micro % 1000 * goes_on / 1000},
                          providers_[payment.provider.n - 1].reserve});
    }
}

// The worth of its place to the job's user. It does not depend on the bid.
Money RunRates::worth_of(const market::Solver& solver, uint32_t i) const {
    const market::JobKey key{i + uint64_t{1}};
    const Money worth = *solver.worth(key);
    if (options_.terms.empty()) return worth;
    const Money bid = solver.job(key)->value;
    return {static_cast<int64_t>(static_cast<__int128>(worth.micro) * specs_[i].value.micro /
                                 std::max<int64_t>(1, bid.micro))};
}

void RunRates::agree_on_envy(std::span<const uint32_t> here) {
    envy_ = {};
    int32_t top = 1;
    std::vector<int64_t> gains(specs_.size());
    for (const Rate& rate : rates_) {
        top = std::max(top, standing_(rate.job).at_speed);
        gains[rate.job] = (rate.worth - rate.price).micro;
    }
    for (const uint32_t i : here) {
        int64_t most = 0;
        for (const Rate& rate : rates_) {
            if (rate.job == i || specs_[rate.job].cpus != specs_[i].cpus) continue;
            const int64_t worth = specs_[i].value.micro / top * standing_(rate.job).at_speed;
            most = std::max(most, worth - rate.price.micro - gains[i]);
        }
        if (most > 1'000) envy_ += Money{most * specs_[i].cpus};
    }
}

}  // namespace souk::sim
