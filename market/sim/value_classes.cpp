// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/sim/value_classes.hpp"

#include <algorithm>

namespace souk::sim {

std::vector<ValueClass> value_classes_of(std::span<const SimJob> jobs) {
    std::vector<Money> values;
    values.reserve(jobs.size());
    for (const SimJob& job : jobs) values.push_back(job.value);
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    std::vector<ValueClass> classes;
    if (values.size() <= value_classes_max) {
        for (const Money v : values) classes.push_back({v, v});
        return classes;
    }
    const Money first = values.front();
    const int64_t width =
        (values.back().micro - first.micro) / static_cast<int64_t>(value_classes_max) + 1;
    for (const Money v : values) {
        const int64_t c = (v.micro - first.micro) / width;
        if (classes.empty() || (classes.back().low.micro - first.micro) / width != c)
            classes.push_back({v, v});
        classes.back().high = v;
    }
    return classes;
}

ClassMeans means_in(const RunReport& report, const ValueClass& c) {
    ClassMeans m;
    for (const ByValue& v : report.by_value) {
        if (v.value < c.low || v.value > c.high) continue;
        m.jobs += v.jobs;
        m.slowdown += v.slowdown * v.jobs;
        m.bounded += v.bounded_slowdown * v.jobs;
    }
    if (m.jobs > 0) m.slowdown /= m.jobs, m.bounded /= m.jobs;
    return m;
}

}  // namespace souk::sim
