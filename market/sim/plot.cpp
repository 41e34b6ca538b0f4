// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/sim/plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace souk::sim {
namespace {

constexpr size_t points_max = 2'000;

// In single quotes gnuplot takes everything but the quote itself as it stands.
std::string quoted(const std::string& text) {
    std::string out = "'";
    for (const char c : text) out += c == '\'' ? std::string("''") : std::string(1, c);
    return out + "'";
}

std::string begin(std::string_view terminal, const std::string& output, const char* x, const char* y) {
    return fmt::format(
        "set terminal {} size 960,600 noenhanced\nset output {}\nset grid\nset key outside bottom center\n"
        "set xlabel '{}'\nset ylabel '{}'\n",
        terminal == "png" ? "png" : "svg", quoted(output), x, y);
}

// Between the two colours of the Gantt chart's palette.
std::string shade(Money low, Money high, Money value) {
    const auto mix = [&](int64_t from, int64_t to) {
        return from + (to - from) * (value.micro - low.micro) / (high.micro - low.micro);
    };
    return fmt::format("#{:02x}{:02x}{:02x}", mix(0xe8, 0x4a), mix(0xf1, 0x90), mix(0xfa, 0xc8));
}

// `rows` in blocks, one for each series; then the plot command over them.
std::string finish(std::span<const PlotSeries> series, const std::string& rows, const char* with) {
    std::string out = "$data << EOD\n" + rows + "EOD\nplot ";
    for (size_t i = 0; i < series.size(); ++i)
        out +=
            fmt::format("{}$data index {} using 1:2 with {} title {}", i ? ", " : "", i, with, quoted(series[i].name));
    return out + "\n";
}

}  // namespace

std::string plot_by_value(std::span<const PlotSeries> series, std::string_view terminal, const std::string& output) {
    std::string rows;
    for (const PlotSeries& s : series) {
        for (const ByValue& v : s.report->by_value)
            rows += fmt::format("{} {}\n", format_money(v.value), v.bounded_slowdown);
        rows += "\n\n";
    }
    return begin(terminal, output, "value", "bounded slowdown") + "set logscale y\n" +
           finish(series, rows, "linespoints");
}

std::string plot_utilisation(std::span<const PlotSeries> series, std::string_view terminal, const std::string& output) {
    std::string rows;
    for (const PlotSeries& s : series) {
        const std::vector<Load>& loads = s.outcome->loads;
        const size_t step = std::max<size_t>(1, loads.size() / points_max);
        for (size_t i = 0; i < loads.size(); i += step) {
            // The mean over the points that this one stands for.
            double busy = 0, offered = 0;
            const size_t end = std::min(loads.size(), i + step);
            for (size_t k = i; k < end; ++k) {
                const int64_t until = k + 1 < loads.size() ? loads[k + 1].at_s : s.outcome->totals.end_s;
                busy += static_cast<double>(loads[k].busy_cpus) * static_cast<double>(until - loads[k].at_s);
                offered += static_cast<double>(loads[k].offered_cpus) * static_cast<double>(until - loads[k].at_s);
            }
            if (offered > 0) rows += fmt::format("{} {:.6f}\n", loads[i].at_s, busy / offered);
        }
        rows += "\n\n";
    }
    return begin(terminal, output, "time (s)", "utilisation") + "set yrange [0:1.05]\n" + finish(series, rows, "steps");
}

std::string plot_gantt(const PlotSeries& series, std::span<const SimJob> jobs, std::span<const SimProvider> providers,
                       std::string_view terminal, const std::string& output) {
    std::vector<Stay> stays = series.outcome->stays;
    std::stable_sort(stays.begin(), stays.end(), [](const Stay& a, const Stay& b) { return a.from_s < b.from_s; });
    // Each stay takes as many free slots of its provider as the job has CPUs; slot k of provider p is row first[p] + k.
    std::vector<size_t> first(providers.size());
    size_t rows = 0;
    for (size_t p = 0; p < providers.size(); ++p) {
        first[p] = rows;
        rows += static_cast<size_t>(providers[p].cpus);
    }
    std::vector<int64_t> free_from(rows, INT64_MIN);
    std::string out =
        begin(terminal, output, "time (s)", "provider") + "unset key\nset title " + quoted(series.name) + "\n";
    Money low = money_max, high;
    for (const SimJob& job : jobs) low = std::min(low, job.value), high = std::max(high, job.value);
    if (low == high) high += Money::units(1);
    size_t object = 0;
    for (const Stay& stay : stays) {
        int32_t need = jobs[stay.job].cpus;
        const size_t end = first[stay.provider] + static_cast<size_t>(providers[stay.provider].cpus);
        for (size_t row = first[stay.provider]; row < end && need > 0; ++row) {
            if (free_from[row] > stay.from_s) continue;
            free_from[row] = stay.to_s;
            --need;
            out += fmt::format(
                "set object {} rectangle from {},{} to {},{} fillcolor rgb '{}' fillstyle solid border rgb '#404040'\n",
                ++object, stay.from_s, static_cast<double>(row) - 0.4, stay.to_s, static_cast<double>(row) + 0.4,
                shade(low, high, jobs[stay.job].value));
            out += fmt::format("set label {} '{}' at {},{} center front\n", object, jobs[stay.job].id,
                               static_cast<double>(stay.from_s + stay.to_s) / 2, row);
        }
    }
    out += "set ytics (";
    for (size_t p = 0; p < providers.size(); ++p)
        out += fmt::format("{}'{}' {}", p ? ", " : "", providers[p].id, first[p]);
    return out + fmt::format(
                     ")\nset palette defined (0 '#e8f1fa', 1 '#4a90c8')\nset cbrange [{}:{}]\nset cblabel 'value'\nset "
                     "xrange [0:{}]\nset yrange [-0.6:{}]\n"
                     "plot NaN with points palette\n",
                     format_money(low), format_money(high), std::max<int64_t>(1, series.outcome->totals.end_s),
                     static_cast<double>(rows) - 0.4);
}

}  // namespace souk::sim
