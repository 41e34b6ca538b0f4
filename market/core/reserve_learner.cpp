// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/reserve_learner.hpp"

#include <algorithm>
#include <cmath>

#include "kernel/base/rng.hpp"

namespace souk::market {
namespace {

constexpr Money least_ask{1'000};  // a thousandth of a unit, where the floor is less
constexpr double minutes_an_hour = 60;

}  // namespace

ReserveLearner::ReserveLearner(Money floor, uint64_t seed, double bonus)
    : floor_(std::max(floor, Money{})),
      last_(floor_),
      bonus_(bonus),
      drawn_(prices_max),
      minutes_(prices_max) {
    Rng rng(seed);
    for (double& d : drawn_)
        d = -std::log((static_cast<double>(rng.below(1u << 30)) + 1) / (1u << 30));
}

double ReserveLearner::at(size_t i) const {
    return static_cast<double>(std::max(floor_, least_ask).micro) *
           std::pow(apart, static_cast<double>(i));
}

// The dearest candidate that is not above that price; prices_max: all are.
size_t ReserveLearner::below(Money price) const {
    const double ratio = static_cast<double>(price.micro) / at(0);
    if (ratio < 1) return prices_max;
    const auto i = static_cast<size_t>(std::log(ratio) / std::log(apart) + 1e-9);
    return std::min(i, prices_max - 1);
}

void ReserveLearner::saw(Money price, int64_t minutes) {
    const size_t i = below(price);
    if (i == prices_max) return;
    if (minutes < 0 && total_ + minutes == 0) last_ = this->price();
    total_ += minutes;
    minutes_[i] += minutes;
    dearest_ = std::max(dearest_, i + 1);
    while (dearest_ > 0 && minutes_[dearest_ - 1] == 0) --dearest_;
}

ReserveLearner::Best ReserveLearner::leader(double bonus) const {
    if (dearest_ == 0) return {floor_, 0};
    double most = -1, revenue_of_best = 0;
    size_t best = 0;
    int64_t sold = 0;
    for (size_t i = dearest_; i-- > 0;) {
        sold += minutes_[i];
        const double revenue = at(i) / 1e6 * static_cast<double>(sold) / minutes_an_hour;
        const double score = revenue + bonus * drawn_[i];
        if (score <= most) continue;
        most = score;
        best = i;
        revenue_of_best = revenue;
    }
    return {std::max(floor_, Money{static_cast<int64_t>(at(best))}), revenue_of_best};
}

Money ReserveLearner::price() const {
    if (dearest_ == 0) return last_;
    const double hour = at(dearest_ - 1) / 1e6;
    const double mean =
        std::sqrt(hour * best().revenue / (1 + std::log(static_cast<double>(dearest_))));
    return leader(bonus_ * mean).price;
}

}  // namespace souk::market
