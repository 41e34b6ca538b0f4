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

// A figure of a report that runs are compared by. Its name is the one that the JSON has; its unit
// is in words, empty: it is a ratio or a count.
struct Figure {
    const char* name;
    const char* unit;
    double (*of)(const RunReport& report);
};
std::span<const Figure> figures();
Estimate estimate(std::span<const RunReport> reports, const Figure& figure);
// The same of the differences, run by run; both have the same seeds. What all variants of one seed
// have in common falls out, so this is surer than the two estimates beside each other.
Estimate difference(std::span<const RunReport> reports, std::span<const RunReport> less,
                    const Figure& figure);
// Whether an interval of a difference has nothing to do with 0.
bool is_clear(const Estimate& difference);

}  // namespace souk::sim
