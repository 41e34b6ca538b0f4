// SPDX-License-Identifier: GPL-2.0-or-later
// Estimate: a figure over several runs that differ in their seed: its mean and the half width of
// the 95 % confidence interval of the mean (Student's t; the runs are independent). Pure.
#pragma once

#include <optional>
#include <span>

#include "market/sim/report.hpp"

namespace souk::sim {

struct Estimate {
    double mean = 0;
    std::optional<double> half;  // none: there is one run
};
Estimate estimate(std::span<const double> values);
// The 97.5 % quantile of Student's t.
double student_t(size_t degrees);

// A figure of a report that runs are compared by. Its name is the one that the JSON has.
struct Figure {
    const char* name;
    double (*of)(const RunReport& report);
};
std::span<const Figure> figures();
Estimate estimate(std::span<const RunReport> reports, const Figure& figure);

}  // namespace souk::sim
