// SPDX-License-Identifier: GPL-2.0-or-later
// Plots: scripts for gnuplot (5.4) with their data inside. They are pure text; the caller runs
// gnuplot.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "market/sim/value_classes.hpp"

namespace souk::sim {

// One line of a comparison.
struct PlotSeries {
    std::string name;
    const RunReport* report = nullptr;
    const RunOutcome* outcome = nullptr;  // with its history recorded
};

// `terminal` is "svg" or "png"; `output` is the file that gnuplot writes. The legend is inside,
// above the data. Bars and lines differ in lightness and in their pattern or marks, so that they
// can be told apart in grey as well. Bars: the mean bounded slowdown of each class of values, one
// bar for each series.
std::string plot_by_value(std::span<const PlotSeries> series, std::span<const ValueClass> classes,
                          std::string_view terminal, const std::string& output);
// Held CPUs of those offered, over time; each line is thinned to at most 480 levels.
std::string plot_utilisation(std::span<const PlotSeries> series, std::string_view terminal,
                             const std::string& output);
// Shows which job ran where and when: a row for each CPU slot of each provider. It is for small
// runs.
std::string plot_gantt(const PlotSeries& series, std::span<const SimJob> jobs,
                       std::span<const SimProvider> providers, std::string_view terminal,
                       const std::string& output);
inline constexpr size_t gantt_stays_max = 400;
inline constexpr size_t gantt_providers_max = 40;

}  // namespace souk::sim
