// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/sim/plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace souk::sim {
namespace {

constexpr size_t points_max = 240;

// In single quotes gnuplot takes everything but the quote itself as it stands.
std::string quoted(const std::string& text) {
    std::string out = "'";
    for (const char c : text) out += c == '\'' ? std::string("''") : std::string(1, c);
    return out + "'";
}

std::string begin(std::string_view terminal, const std::string& output, const char* x,
                  const char* y) {
    return fmt::format(
        "set terminal {} size 960,600 noenhanced{}\nset output {}\nset grid y\n"
        "set xlabel '{}'\nset ylabel '{}'\n",
        terminal == "png" ? "png" : "svg", terminal == "png" ? "" : " background rgb 'white'",
        quoted(output), x, y);
}

// From dark to light and back, so that neighbours differ in grey too.
constexpr const char* colours[] = {"#0b3c6f", "#f5b041", "#a93226", "#7fc8f8",
                                   "#1e6b3a", "#d7bde2", "#4a235a", "#a9dfbf"};
// of gnuplot: full, empty, crossed, hatched ...
constexpr int patterns[] = {3, 0, 1, 4, 2, 5, 6, 7};
constexpr size_t styles = std::size(colours);

constexpr size_t legend_rows_max = 4;

// The legend, above the data: `room` is how much of the height it takes.
std::string legend() {
    return fmt::format(
        "set key inside top left horizontal Left reverse maxrows {} samplen 3 opaque\n",
        legend_rows_max);
}
double room(size_t series) {
    return 0.08 + 0.05 * static_cast<double>(std::min(series, legend_rows_max));
}

// Between the two colours of the Gantt chart's palette.
std::string shade(Money low, Money high, Money value) {
    const auto mix = [&](int64_t from, int64_t to) {
        return from + (to - from) * (value.micro - low.micro) / (high.micro - low.micro);
    };
    return fmt::format("#{:02x}{:02x}{:02x}", mix(0xe8, 0x4a), mix(0xf1, 0x90), mix(0xfa, 0xc8));
}

}  // namespace

std::string plot_by_value(std::span<const PlotSeries> series, std::span<const ValueClass> classes,
                          std::string_view terminal, const std::string& output) {
    std::string rows;
    double least = INFINITY, most = 1;
    for (const ValueClass& c : classes) {
        rows += "\"" + c.name() + "\"";
        for (const PlotSeries& s : series) {
            const ClassMeans m = means_in(*s.report, c);
            if (m.jobs > 0) least = std::min(least, m.bounded), most = std::max(most, m.bounded);
            rows += m.jobs > 0 ? fmt::format(" {:.6g}", m.bounded) : " NaN";
        }
        rows += "\n";
    }
    // Slowdowns begin at 1. Where they span decades the scale is logarithmic, from below 1, so that
    // a 1 has a bar too.
    const bool decades = most > 20 * std::min(least, most);
    const double low = decades ? 0.5 : 0, share = 1 - room(series.size());
    const double high = decades ? low * std::pow(most / low, 1 / share) : most / share;
    std::string out =
        begin(terminal, output, "value", "mean bounded slowdown") + legend() +
        "set style data histograms\nset style histogram clustered gap 1\nset boxwidth 0.95 "
        "relative\n" +
        (decades ? "set logscale y\n" : "") +
        fmt::format("set yrange [{:.6g}:{:.6g}]\nset xtics nomirror {}scale 0\n$data << EOD\n", low,
                    high, classes.size() > 8 ? "rotate by -30 " : "") +
        rows + "EOD\nplot ";
    for (size_t i = 0; i < series.size(); ++i)
        out += fmt::format(
            "{}$data using {}:xtic(1) fillstyle pattern {} border rgb '#202020' linecolor rgb '{}' "
            "title {}",
            i ? ", " : "", i + 2, patterns[i % styles], colours[i % styles],
            quoted(series[i].name));
    return out + "\n";
}

std::string plot_utilisation(std::span<const PlotSeries> series, std::string_view terminal,
                             const std::string& output) {
    std::string rows;
    std::vector<size_t> points;
    for (const PlotSeries& s : series) {
        const std::vector<Load>& loads = s.outcome->loads;
        const size_t step = std::max<size_t>(1, loads.size() / points_max);
        size_t count = 0;
        for (size_t i = 0; i < loads.size(); i += step) {
            // The mean over the points that this one stands for, as a level from its time to the
            // next one's.
            double busy = 0, offered = 0;
            const size_t end = std::min(loads.size(), i + step);
            const auto at = [&](size_t k) {
                return k < loads.size() ? loads[k].at_s : s.outcome->totals.end_s;
            };
            for (size_t k = i; k < end; ++k) {
                busy += static_cast<double>(loads[k].busy_cpus) *
                        static_cast<double>(at(k + 1) - at(k));
                offered += static_cast<double>(loads[k].offered_cpus) *
                           static_cast<double>(at(k + 1) - at(k));
            }
            if (offered <= 0) continue;
            rows += fmt::format("{0} {2:.6f}\n{1} {2:.6f}\n", at(i), at(end), busy / offered);
            count += 2;
        }
        points.push_back(count);
        rows += "\n\n";
    }
    std::string out = begin(terminal, output, "time (s)", "utilisation") + legend() +
                      fmt::format("set yrange [0:{:.4g}]\nset ytics 0,0.2,1\n$data << EOD\n",
                                  1 / (1 - room(series.size()))) +
                      rows + "EOD\nplot ";
    // Marks at a dozen places of each line, not at the same ones; who comes first is drawn wider,
    // so that a line that lies on it leaves it visible.
    for (size_t i = 0; i < series.size(); ++i)
        out += fmt::format(
            "{}$data index {} using 1:2 with linespoints linewidth {} linecolor rgb '{}' dashtype "
            "{} pointtype {} "
            "pointsize 1.1 pointinterval {} title {}",
            i ? ", " : "", i, std::max(1.5, 4.0 - static_cast<double>(i)), colours[i % styles],
            1 + i % 5, 4 + i % 10, std::max<size_t>(1, points[i] / 12 + i), quoted(series[i].name));
    return out + "\n";
}

std::string plot_gantt(const PlotSeries& series, std::span<const SimJob> jobs,
                       std::span<const SimProvider> providers, std::string_view terminal,
                       const std::string& output) {
    std::vector<Stay> stays = series.outcome->stays;
    std::stable_sort(stays.begin(), stays.end(),
                     [](const Stay& a, const Stay& b) { return a.from_s < b.from_s; });
    // Each stay takes as many free slots of its provider as the job has CPUs; slot k of provider p
    // is row first[p] + k.
    std::vector<size_t> first(providers.size());
    size_t rows = 0;
    for (size_t p = 0; p < providers.size(); ++p) {
        first[p] = rows;
        rows += static_cast<size_t>(providers[p].cpus);
    }
    std::vector<int64_t> free_from(rows, INT64_MIN);
    std::string out = begin(terminal, output, "time (s)", "provider") +
                      "set grid x\nunset key\nset title " + quoted(series.name) + "\n";
    Money low = money_max, high;
    for (const SimJob& job : jobs) low = std::min(low, job.value), high = std::max(high, job.value);
    if (low == high) high += Money::units(1);
    size_t object = 0;
    for (const Stay& stay : stays) {
        int32_t need = jobs[stay.job].cpus;
        const size_t end =
            first[stay.provider] + static_cast<size_t>(providers[stay.provider].cpus);
        for (size_t row = first[stay.provider]; row < end && need > 0; ++row) {
            if (free_from[row] > stay.from_s) continue;
            free_from[row] = stay.to_s;
            --need;
            out += fmt::format(
                "set object {} rectangle from {},{} to {},{} fillcolor rgb '{}' fillstyle solid "
                "border rgb '#404040'\n",
                ++object, stay.from_s, static_cast<double>(row) - 0.4, stay.to_s,
                static_cast<double>(row) + 0.4, shade(low, high, jobs[stay.job].value));
            out +=
                fmt::format("set label {} '{}' at {},{} center front\n", object, jobs[stay.job].id,
                            static_cast<double>(stay.from_s + stay.to_s) / 2, row);
        }
    }
    out += "set ytics (";
    for (size_t p = 0; p < providers.size(); ++p)
        out += fmt::format("{}'{}' {}", p ? ", " : "", providers[p].id, first[p]);
    return out + fmt::format(
                     ")\nset palette defined (0 '#e8f1fa', 1 '#4a90c8')\nset cbrange [{}:{}]\nset "
                     "cblabel 'value'\nset "
                     "xrange [0:{}]\nset yrange [-0.6:{}]\n"
                     "plot NaN with points palette\n",
                     format_money(low), format_money(high),
                     std::max<int64_t>(1, series.outcome->totals.end_s),
                     static_cast<double>(rows) - 0.4);
}

}  // namespace souk::sim
