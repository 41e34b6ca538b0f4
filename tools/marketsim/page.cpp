// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/marketsim/page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <vector>

#include "market/sim/estimate.hpp"
#include "tools/web/html.hpp"
#include "tools/web/pages.hpp"

namespace souk::tools {
namespace {

using web::Html;
using PageJson = nlohmann::ordered_json;

struct Point {
    std::string name;
    double mean = 0;
    std::optional<double> half;  // of the 95 % confidence interval
};
// One figure over all variants that have it.
struct Series {
    std::string name, unit;
    std::vector<Point> points;
};

std::string words(std::string name) {
    std::replace(name.begin(), name.end(), '_', ' ');
    return name;
}

std::string short_number(double value) { return fmt::format("{:.4g}", value); }

// `among`: the means over the seeds, or the differences from the first variant.
std::optional<Point> point_of(const PageJson& variant, const char* figure, const char* among) {
    Point point{variant.value("variant", ""), 0, {}};
    if (variant.contains(among) && variant[among].contains(figure)) {
        const PageJson& one = variant[among][figure];
        if (!one.is_object()) return std::nullopt;
        point.mean = one.value("mean", 0.0);
        point.half = one.value("ci95", 0.0);
        return point;
    }
    if (!variant.contains(figure) || !variant[figure].is_number()) return std::nullopt;
    point.mean = variant[figure].get<double>();
    return point;
}

constexpr const char *page_means = "over_seeds", *page_differences = "more_by_seed";

std::vector<Series> series_of(const PageJson& variants, const char* among = page_means) {
    std::vector<Series> all;
    for (const sim::Figure& figure : sim::figures()) {
        Series series{figure.name, figure.unit, {}};
        for (const PageJson& variant : variants) {
            if (among == page_differences && !variant.contains(page_differences)) continue;
            if (const auto point = point_of(variant, figure.name, among))
                series.points.push_back(*point);
        }
        if (!series.points.empty()) all.push_back(std::move(series));
    }
    return all;
}

// Maps a value to a place in the picture; 0 is always in it.
struct Scale {
    double least = 0, most = 0, from = 0, to = 1;

    void take(double value) {
        least = std::min(least, value);
        most = std::max(most, value);
    }
    double at(double value) const {
        const double span = most > least ? most - least : 1;
        return from + (to - from) * (value - least) / span;
    }
};

constexpr double row_height = 26, label_width = 300, bar_end = 700;

void add_bar(Html& h, const Point& p, const Scale& scale, double y) {
    const double zero = scale.at(0), end = scale.at(p.mean);
    h.markup("<text x=\"0\" y=\"").number(y + 17).markup("\">").text(p.name).markup("</text>");
    h.markup("<rect class=\"runs\" x=\"").number(std::min(zero, end)).markup("\" y=\"");
    h.number(y + 5)
        .markup("\" width=\"")
        .number(std::fabs(end - zero))
        .markup("\" height=\"16\"/>");
    double right = std::max(zero, end);
    if (p.half) {
        const double low = scale.at(p.mean - *p.half), high = scale.at(p.mean + *p.half);
        h.markup("<line class=\"interval\" x1=\"").number(low).markup("\" x2=\"").number(high);
        h.markup("\" y1=\"").number(y + 13).markup("\" y2=\"").number(y + 13).markup("\"/>");
        right = std::max(right, high);
    }
    h.markup("<text x=\"").number(right + 6).markup("\" y=\"").number(y + 17).markup("\">");
    h.text(short_number(p.mean) + (p.half ? " ± " + short_number(*p.half) : ""));
    h.markup("</text>");
}

Html bars(const Series& series) {
    Scale scale{0, 0, label_width, bar_end};
    for (const Point& p : series.points)
        for (const double sign : {-1.0, 0.0, 1.0}) scale.take(p.mean + sign * p.half.value_or(0));
    Html h;
    h.markup("<svg class=\"lanes\" role=\"img\" viewBox=\"0 0 860 ");
    h.number(row_height * static_cast<double>(series.points.size())).markup("\"><title>");
    std::string label = words(series.name) + ":";
    for (const Point& p : series.points) label += " " + p.name + " " + short_number(p.mean) + ";";
    h.text(label).markup("</title>");
    double y = 0;
    for (const Point& p : series.points) {
        add_bar(h, p, scale, y);
        y += row_height;
    }
    return h.markup("</svg>"), h;
}

void add_cell(Html& h, const std::string& title, const std::string& text, bool number) {
    h.markup(number ? web::Markup("<td class=\"number\" data-title=\"")
                    : web::Markup("<td data-title=\""));
    h.text(title).markup("\">").text(text).markup("</td>");
}

void open_table(Html& h, const std::string& caption, const std::vector<std::string>& titles) {
    h.markup("<table><caption>").text(caption).markup("</caption><thead><tr>");
    for (size_t i = 0; i < titles.size(); ++i) {
        h.markup(i == 0 ? web::Markup("<th scope=\"col\">")
                        : web::Markup("<th scope=\"col\" class=\"number\">"));
        h.text(titles[i]).markup("</th>");
    }
    h.markup("</tr></thead><tbody>");
}

// A line for each figure, a column for each variant. Of differences those whose interval leaves out
// 0 have a star.
Html figures_table(const char* caption, const std::vector<Series>& all,
                   const std::vector<std::string>& names, bool stars = false) {
    Html h;
    std::vector<std::string> titles = {"Figure", "Unit"};
    titles.insert(titles.end(), names.begin(), names.end());
    open_table(h, caption, titles);
    for (const Series& series : all) {
        h.markup("<tr>");
        add_cell(h, "Figure", words(series.name), false);
        add_cell(h, "Unit", series.unit.empty() ? "-" : series.unit, false);
        for (const std::string& name : names) {
            const auto point = std::find_if(series.points.begin(), series.points.end(),
                                            [&](const Point& p) { return p.name == name; });
            const bool known = point != series.points.end();
            add_cell(h, name,
                     !known ? "none"
                            : fmt::format("{:.6g}", point->mean) +
                                  (point->half ? fmt::format(" ± {:.3g}", *point->half) : "") +
                                  (stars && sim::is_clear({point->mean, point->half}) ? " *" : ""),
                     true);
        }
        h.markup("</tr>");
    }
    return h.markup("</tbody></table>"), h;
}

// The jobs of one worth in one variant, over all of its seeds.
struct OfValue {
    double jobs = 0, slowdown = 0;  // slowdown: the sum over the jobs
};

std::map<double, OfValue> values_of(const PageJson& variant) {
    std::map<double, OfValue> all;
    const auto add = [&all](const PageJson& run) {
        for (const PageJson& one : run.value("by_value", PageJson::array())) {
            OfValue& of = all[one.value("value", 0.0)];
            of.jobs += one.value("jobs", 1.0);
            of.slowdown += one.value("jobs", 1.0) * one.value("bounded_slowdown", 0.0);
        }
    };
    add(variant);
    for (const PageJson& seed : variant.value("by_seed", PageJson::array())) add(seed);
    return all;
}

// Shows the mean bounded slowdown of jobs, a row for each worth, a column for each variant.
Html by_value(const PageJson& variants) {
    std::set<double> values;
    std::vector<std::map<double, OfValue>> of_variants;
    for (const PageJson& v : variants) {
        if (v.contains("error")) continue;
        for (const auto& [value, of] : of_variants.emplace_back(values_of(v))) values.insert(value);
    }
    constexpr size_t rows_max = 60;
    Html h;
    if (values.empty() || values.size() > rows_max) return h;
    std::vector<std::string> titles = {"Worth per CPU-hour"};
    for (const PageJson& v : variants)
        if (!v.contains("error")) titles.push_back(v.value("variant", ""));
    h.markup("<h2>Mean bounded slowdown by what a job is worth</h2>");
    open_table(h, "Mean bounded slowdown by what a job is worth", titles);
    for (const double value : values) {
        h.markup("<tr>");
        add_cell(h, titles[0], fmt::format("{:g}", value), false);
        for (size_t i = 0; i < of_variants.size(); ++i) {
            const auto of = of_variants[i].find(value);
            const bool known = of != of_variants[i].end() && of->second.jobs > 0;
            add_cell(h, titles[i + 1],
                     known ? fmt::format("{:.3f}", of->second.slowdown / of->second.jobs) : "none",
                     true);
        }
        h.markup("</tr>");
    }
    return h.markup("</tbody></table>"), h;
}

Status check(const PageJson& variants) {
    if (!variants.is_array() || variants.empty())
        return fail("it is no comparison: marketsim compare --json FILE writes one");
    for (const PageJson& v : variants) {
        const bool named = v.is_object() && v.contains("variant") && v["variant"].is_string();
        if (!named) return fail("it is no comparison: a part of it has no name (variant)");
        for (const char* list : {"by_value", "by_seed"})
            for (const PageJson& one : v.value(list, PageJson::array()))
                if (!one.is_object())
                    return fail(std::string("it is no comparison: ") + list + " holds no objects");
    }
    return {};
}

void add_fact(Html& h, const std::string& name, const std::string& text) {
    h.markup("<div><dt>").text(name).markup("</dt><dd>").text(text).markup("</dd></div>");
}

// "600", or "590 to 612" over the seeds.
std::string range_of(const PageJson& drawn, const char* name) {
    std::optional<double> least, most;
    for (const PageJson& one : drawn) {
        if (!one.is_object() || !one.contains(name) || !one[name].is_number()) continue;
        const double value = one[name].get<double>();
        least = std::min(least.value_or(value), value);
        most = std::max(most.value_or(value), value);
    }
    if (!least) return "-";
    return short_number(*least) + (*least < *most ? " to " + short_number(*most) : "");
}

// Says what was simulated, so that somebody else can do it again.
Html workload_part(const PageJson& all) {
    Html h;
    if (!all.is_object() || !all.contains("workload") || !all["workload"].is_object()) return h;
    const PageJson& w = all["workload"];
    const auto text = [](const PageJson& of, const std::string& name) {
        return of.contains(name) && of[name].is_string() ? of[name].get<std::string>() : "";
    };
    h.markup("<h2>Workload</h2><dl>");
    for (const auto& [name, words] : {std::pair{"trace", "Log"},
                                      {"configuration", "Configuration"},
                                      {"jobs_file", "Jobs"},
                                      {"providers_file", "Providers"}})
        if (w.contains(name))
            add_fact(h, words,
                     text(w, name) + ", SHA-256 " + text(w, std::string(name) + "_sha256"));
    const PageJson drawn = w.value("drawn", PageJson::array());
    add_fact(h, "Seeds", range_of(drawn, "seed"));
    add_fact(h, "Jobs of each seed", range_of(drawn, "jobs"));
    add_fact(h, "Providers", range_of(drawn, "providers"));
    add_fact(h, "Offered load (1: all that can be done)", range_of(drawn, "offered_load"));
    add_fact(h, "Made by", "marketsim " + text(all, "marketsim"));
    h.markup("</dl>");
    if (w.contains("configuration_text"))
        h.markup("<pre>").text(text(w, "configuration_text")).markup("</pre>");
    return h;
}

Html differences_part(const PageJson& variants) {
    Html h;
    std::vector<std::string> names;
    std::string base;
    for (const PageJson& v : variants)
        if (v.contains(page_differences)) {
            names.push_back(v.value("variant", ""));
            base = v[page_differences].value("than", "");
        }
    if (names.empty()) return h;
    h.markup("<h2>Differences from ").text(base).markup("</h2><p>");
    h.text("Each is the mean over the seeds of what the variant has more than " + base +
           " with the same seed, with the half width of its 95 % interval. *: the interval leaves "
           "out 0.");
    return h.markup("</p>").add(
               figures_table("Differences", series_of(variants, page_differences), names, true)),
           h;
}

Html main_part(const PageJson& all_of_it, const PageJson& variants, const std::string& title) {
    const std::vector<Series> all = series_of(variants);
    std::vector<std::string> names;
    Html h;
    h.markup("<h1>").text(title).markup("</h1>");
    int64_t seeds = 1;
    for (const PageJson& v : variants) {
        const std::string name = v.value("variant", "");
        if (v.contains("error"))
            h.markup("<p class=\"warning\">")
                .text(name + " failed: " + v.value("error", ""))
                .markup("</p>");
        else
            names.push_back(name);
        if (v.contains("over_seeds"))
            seeds = std::max<int64_t>(seeds, v["over_seeds"].value("seeds", 1));
    }
    h.markup("<p>").text(std::to_string(names.size()) + " variants, ");
    if (seeds > 1)
        h.text(std::to_string(seeds) +
               " seeds: means, and the half widths of their 95 % intervals");
    else
        h.text("one workload: there are no intervals");
    h.markup(".</p>")
        .add(workload_part(all_of_it))
        .markup("<nav aria-label=\"Figures\"><ul class=\"figures\">");
    for (const Series& s : all)
        h.markup("<li><a href=\"#")
            .text(s.name)
            .markup("\">")
            .text(words(s.name))
            .markup("</a></li>");
    h.markup("</ul></nav><h2>All figures</h2>").add(figures_table("All figures", all, names));
    h.add(differences_part(variants));
    for (const Series& s : all)
        h.markup("<h2 id=\"")
            .text(s.name)
            .markup("\">")
            .text(words(s.name) + (s.unit.empty() ? "" : " (" + s.unit + ")"))
            .markup("</h2>")
            .add(bars(s));
    return h.add(by_value(variants)), h;
}

}  // namespace

Result<std::string> comparison_page(std::string_view json, const std::string& title) {
    const PageJson all = parse_json(json);
    // A comparison of an older version is the list alone.
    const PageJson variants = all.is_object() ? all.value("variants", PageJson::array()) : all;
    TRY(check(variants));
    Html h;
    h.markup(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
        "'unsafe-inline'\"><title>");
    h.text(title).markup("</title><style>");
    std::string page = h.str() + std::string(web::style_css) +
                       "line.interval { stroke: var(--text); stroke-width: 2; }\n"
                       "ul.figures { display: flex; flex-wrap: wrap; gap: 4px 16px; padding: 0; "
                       "list-style: none; }\nul.figures a { display: inline-block; padding: 4px 0; "
                       "}\n"
                       "@media print {\n  :root { color-scheme: light; --back: #fff; --text: #000; "
                       "--dim: #333; --line: #999; --band: #fff; --run: #777; }\n  nav { display: "
                       "none; }\n  main { max-width: none; padding: 0; }\n  h2 { break-after: "
                       "avoid; }\n  svg, tr { break-inside: avoid; }\n}\n"
                       "pre { overflow-x: auto; }\n";
    return page + "</style></head><body><main>" + main_part(all, variants, title).str() +
           "</main></body></html>\n";
}

}  // namespace souk::tools
