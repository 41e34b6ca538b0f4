// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/price_rounds.hpp"

#include <algorithm>

namespace souk::market {
namespace {
// A price that changes is a record and two notes.
constexpr uint64_t steps_at_once = 20'000, steps_per_change = 500;
constexpr int64_t pace_per_step_ns = 600;
constexpr Nanos pace_min = Nanos::from_s(1);
constexpr size_t changes_at_once = 128;
}  // namespace

// The jobs whose prices take an integral each: after the one that was reckoned last, in turn.
void PriceRounds::list_rest(std::vector<JobKey> all, const Payers& payers) {
    std::erase_if(all, [&](JobKey key) { return !payers.may_change(key); });
    std::rotate(all.begin(), std::upper_bound(all.begin(), all.end(), reckoned_), all.end());
    rest_ = std::move(all);
}

// Returns how many steps that took.
uint64_t PriceRounds::reckon(const Solver& solver, const Payers& payers, uint64_t steps_max,
                             Nanos now) {
    if (due_ && (rest_.empty() || now >= round_at_ + pace_min)) {
        due_ = false;
        round_at_ = now;
        Solver::PriceStart start = solver.start_prices();
        payers.reckoned(start, now);
        round_ = std::move(start.payments);
        list_rest(std::move(start.rest), payers);
        return 2 * (solver.jobs() + solver.providers());
    }
    const auto end =
        rest_.begin() + static_cast<ptrdiff_t>(std::min(rest_.size(), changes_at_once));
    std::vector<JobKey> some(rest_.begin(), end);
    uint64_t steps = 0;
    round_ = solver.more_prices(some, steps_max, steps);
    payers.reckoned(round_, now);
    if (!round_.empty()) reckoned_ = round_.back().job;
    some.insert(some.end(), end, rest_.end());
    rest_ = std::move(some);
    return steps;
}

void PriceRounds::refresh(const Solver& solver, Payers& payers, Nanos now) {
    if (now < at_ + pace_) return;
    uint64_t steps = 0;
    for (size_t changes = 0; steps < steps_at_once;) {
        if (next_ == round_.size()) {
            round_.clear();
            next_ = 0;
            if (!due_ && rest_.empty()) break;
            steps += reckon(solver, payers, steps_at_once - steps, now);
        }
        for (; next_ < round_.size() && changes < changes_at_once; ++next_)
            if (payers.take(round_[next_], now)) {
                ++changes;
                steps += steps_per_change;
            }
        if (changes == changes_at_once) break;
    }
    pace_ = Nanos{steps > steps_at_once ? static_cast<int64_t>(steps) * pace_per_step_ns : 0};
    at_ = now;
}

Nanos PriceRounds::next_call() const {
    return due_ || !round_.empty() || !rest_.empty() ? at_ + pace_ : Nanos::never();
}

}  // namespace souk::market
