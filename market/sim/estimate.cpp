// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/sim/estimate.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

namespace souk::sim {
namespace {

double units_of(Money m) { return static_cast<double>(m.micro) / 1e6; }

using R = RunReport;
constexpr Figure all_figures[] = {
    {"mean_slowdown", "", [](const R& r) { return r.slowdown; }},
    {"mean_bounded_slowdown", "", [](const R& r) { return r.bounded_slowdown; }},
    {"bounded_slowdown_p50", "", [](const R& r) { return r.bounded_slowdowns.p50; }},
    {"bounded_slowdown_p95", "", [](const R& r) { return r.bounded_slowdowns.p95; }},
    {"bounded_slowdown_p99", "", [](const R& r) { return r.bounded_slowdowns.p99; }},
    {"mean_wait", "s", [](const R& r) { return r.wait_s; }},
    {"wait_p50", "s", [](const R& r) { return r.waits.p50; }},
    {"wait_p95", "s", [](const R& r) { return r.waits.p95; }},
    {"wait_p99", "s", [](const R& r) { return r.waits.p99; }},
    {"weighted_completion_time", "money x s / h",
     [](const R& r) { return r.weighted_completion_s; }},
    {"social_welfare", "money", [](const R& r) { return units_of(r.welfare); }},
    {"consumers_surplus", "money", [](const R& r) { return units_of(r.consumers_surplus); }},
    {"providers_surplus", "money", [](const R& r) { return units_of(r.providers_surplus); }},
    {"paid", "money", [](const R& r) { return units_of(r.paid); }},
    {"utilisation", "", [](const R& r) { return r.utilisation; }},
    {"migrations", "", [](const R& r) { return static_cast<double>(r.moves_total); }},
    {"freezes", "", [](const R& r) { return static_cast<double>(r.freezes_total); }},
    {"moved_mb", "MB", [](const R& r) { return static_cast<double>(r.moved_mb); }},
    {"unfinished", "jobs", [](const R& r) { return static_cast<double>(r.unfinished); }},
    {"makespan_s", "s", [](const R& r) { return static_cast<double>(r.end_s); }},
};

}  // namespace

std::span<const Figure> figures() { return all_figures; }

double student_t(size_t degrees) {
    constexpr double table[] = {12.7062, 4.3027, 3.1824, 2.7764, 2.5706,
                                2.4469,  2.3646, 2.3060, 2.2622, 2.2281};
    if (degrees == 0) return INFINITY;
    if (degrees <= std::size(table)) return table[degrees - 1];
    // Cornish and Fisher's expansion about the normal quantile: off by less than 0.0002 from here
    // on.
    const double z = 1.959963985, n = static_cast<double>(degrees);
    const double z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z;
    return z + (z3 + z) / (4 * n) + (5 * z5 + 16 * z3 + 3 * z) / (96 * n * n) +
           (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * n * n * n);
}

Estimate estimate(std::span<const double> values) {
    Estimate e;
    for (const double v : values) e.mean += v;
    const auto n = static_cast<double>(values.size());
    e.mean /= std::max(1.0, n);
    if (values.size() < 2) return e;
    double squares = 0;
    for (const double v : values) squares += (v - e.mean) * (v - e.mean);
    e.half = student_t(values.size() - 1) * std::sqrt(squares / (n - 1) / n);
    return e;
}

Estimate estimate(std::span<const RunReport> reports, const Figure& figure) {
    std::vector<double> values;
    values.reserve(reports.size());
    for (const RunReport& r : reports) values.push_back(figure.of(r));
    return estimate(values);
}

Estimate difference(std::span<const RunReport> reports, std::span<const RunReport> less,
                    const Figure& figure) {
    std::vector<double> values;
    for (size_t i = 0; i < std::min(reports.size(), less.size()); ++i)
        values.push_back(figure.of(reports[i]) - figure.of(less[i]));
    return estimate(values);
}

bool is_clear(const Estimate& e) { return e.half && std::fabs(e.mean) > *e.half; }

}  // namespace souk::sim
