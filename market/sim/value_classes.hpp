// SPDX-License-Identifier: GPL-2.0-or-later
// Value classes: the jobs of a comparison by their value, in as many classes as a table or a chart
// can show. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "market/sim/report.hpp"

namespace souk::sim {

inline constexpr size_t value_classes_max = 12;

struct ValueClass {
    Money low, high;
    std::string name() const {
        return low == high ? format_money(low) : format_money(low) + " to " + format_money(high);
    }
    bool operator==(const ValueClass&) const = default;
};

// Every value for itself, or classes of equal width where there are more than value_classes_max;
// ascending.
std::vector<ValueClass> value_classes_of(std::span<const SimJob> jobs);

// Means over the finished jobs of a class.
struct ClassMeans {
    uint32_t jobs = 0;
    double slowdown = 0, bounded = 0;
};
ClassMeans means_in(const RunReport& report, const ValueClass& c);

}  // namespace souk::sim
