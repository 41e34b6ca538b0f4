// SPDX-License-Identifier: GPL-2.0-or-later
// Single decisions for the studies: small random markets, who runs where and what it pays.
#pragma once

#include <vector>

#include "market/core/solver.hpp"

namespace souk::study {

struct Decision {
    std::vector<market::JobDemand> jobs;          // key is index + 1
    std::vector<market::ProviderSpec> providers;  // likewise

    int32_t top() const;
};
struct Outcome {
    std::vector<int32_t> place;  // by job: index of its provider; -1: none
    std::vector<Money> price;
};
Outcome decide(const Decision& d, const char* algorithm);
// The gain of a user's jobs per hour, in units of money, if `values` are the true values.
double gain_of(const Decision& d, const Outcome& o, const std::vector<Money>& values,
               uint32_t user);
// The sum of value x speed / fastest - reserve, per CPU-hour x CPUs, in units of money.
double welfare_of(const Decision& d, const Outcome& o);

}  // namespace souk::study
