// SPDX-License-Identifier: GPL-2.0-or-later
// ReserveLearner: which reservation price an owner does best to ask, learned from what places of
// the market have cost (price_history.hpp). Pure.
//
// The rule is to follow the perturbed leader (Hannan 1957; Kalai and Vempala, Efficient algorithms
// for online decision problems, 2005) over prices that are 1 % apart. An hour in which one more
// place cost p would have paid g to an owner who asks g, if g is at most p, and nothing to one who
// asks more: after the hour it is known what each price would have brought. Asked is the one that
// would have brought most, where each has been given a bonus that is drawn once. With a mean of
// sqrt(h OPT / (1 + ln K)) for it, the expected revenue is less than that of the best of K fixed
// prices, OPT, by no more than 2 sqrt(h OPT (1 + ln K)), whatever the prices are (h: of the dearest
// hour), and 1 % is lost between two prices. `bonus` scales it; docs/market-study.md has what is
// measured.
#pragma once

#include <cstdint>
#include <vector>

#include "kernel/base/money.hpp"

namespace souk::market {

class ReserveLearner {
  public:
    explicit ReserveLearner(Money floor, uint64_t seed, double bonus = default_bonus);

    // One more place cost so much for so long; below 0: this is forgotten again.
    void saw(Money price, int64_t minutes);
    // The price to ask next, never below the floor. While nothing is known it is the floor; when
    // all was forgotten, what was asked last.
    Money price() const;
    // The best fixed price of all that was seen, and what it would have brought, in units.
    struct Best {
        Money price;
        double revenue = 0;
    };
    Best best() const { return leader(0); }

    static constexpr double default_bonus = 0.05;

  private:
    // Two prices next to each other.
    static constexpr double apart = 1.01;
    static constexpr size_t prices_max = 2'800;
    Best leader(double bonus) const;
    double at(size_t i) const;
    size_t below(Money price) const;

    Money floor_, last_;
    double bonus_;
    std::vector<double> drawn_;     // of each price, exponential with mean 1
    std::vector<int64_t> minutes_;  // by the dearest price that is not above
    int64_t total_ = 0;
    size_t dearest_ = 0;  // index and one; 0: nothing was seen
};

}  // namespace souk::market
