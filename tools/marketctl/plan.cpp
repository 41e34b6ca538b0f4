// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/marketctl/plan.hpp"

#include <algorithm>
#include <ctime>
#include <map>
#include <vector>

#include "kernel/base/ids.hpp"
#include "tools/common/ahead.hpp"
#include "tools/common/table.hpp"

namespace souk::tools {
namespace {

Result<std::string> plan_text(const Answer& answer) {
    Table table({{"Node"},
                 {"From"},
                 {"Until"},
                 {"Job"},
                 {"CPUs", true},
                 {"Memory", true},
                 {"User"},
                 {"Name"},
                 {"What"}});
    return table.text_of(answer, [](const Json& s) -> std::vector<std::string> {
        const std::string kind = field(s, "kind");
        const bool known = s.value("end_known", false);
        return {field(s, "node"),
                local_time(s, "from_unix_s"),
                known             ? local_time(s, "to_unix_s")
                : kind == "later" ? "-"
                                  : "not known",
                field(s, "job"),
                field(s, "cpus"),
                megabytes(s, "memory_mb"),
                field(s, "user"),
                field(s, "name"),
                kind};
    });
}

// ---- the picture: nodes from top to bottom, time to the right

struct Bar {
    double from = 0, to = 0;
    int64_t cpus = 1;
    std::string kind, label;
    bool end_known = false;
    int64_t row = 0;  // the first of the CPUs that it is drawn on
};
struct Lane {
    int64_t cpus = 1;
    std::vector<Bar> bars;
};

std::string escaped(const std::string& text) {
    std::string out;
    for (const char c : text) {
        if (c == '&')
            out += "&amp;";
        else if (c == '<')
            out += "&lt;";
        else if (c == '"')
            out += "&quot;";
        else
            out += c;
    }
    return out;
}

// Each bar gets the first rows that are free all its time.
void lay_out(Lane& lane) {
    for (size_t i = 0; i < lane.bars.size(); ++i) {
        Bar& bar = lane.bars[i];
        const auto taken = [&](int64_t row) {
            return std::any_of(lane.bars.begin(), lane.bars.begin() + static_cast<ptrdiff_t>(i),
                               [&](const Bar& b) {
                                   return b.row < row + bar.cpus && row < b.row + b.cpus &&
                                          b.from < bar.to && bar.from < b.to;
                               });
        };
        while (bar.row + bar.cpus < lane.cpus && taken(bar.row)) ++bar.row;
    }
}

std::string number(double n) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f", n);
    return text;
}

std::string clock(double unix_s) {
    const auto at = static_cast<time_t>(unix_s);
    tm local{};
    ::localtime_r(&at, &local);
    char text[32];
    (void)std::strftime(text, sizeof text, "%a %H:%M", &local);
    return text;
}

// Another site may say any time.
constexpr double time_most = 8e9;

class Picture {
  public:
    explicit Picture(std::map<std::string, Lane> lanes) : lanes_(std::move(lanes)) {
        for (auto& [node, lane] : lanes_) {
            for (Bar& b : lane.bars) {
                b.from = std::clamp(b.from, 0.0, time_most);
                b.to = std::clamp(b.to, 0.0, time_most);
            }
            lay_out(lane);
            for (const Bar& b : lane.bars) {
                first_ = first_ == 0 ? b.from : std::min(first_, b.from);
                last_ = std::max(last_, b.to);
            }
        }
        if (last_ <= first_) last_ = first_ + 3'600;
    }

    std::string text() {
        double y = top;
        for (const auto& [node, lane] : lanes_) {
            body_ += "<text x=\"8\" y=\"" + number(y + 13) + "\">" + escaped(node) + "</text>\n";
            for (const Bar& b : lane.bars) draw(b, y);
            y += static_cast<double>(lane.cpus) * row + gap;
            body_ += "<line class=\"axis\" x1=\"0\" x2=\"" + number(width) + "\" y1=\"" +
                     number(y - gap / 2) + "\" y2=\"" + number(y - gap / 2) + "\"/>\n";
        }
        draw_hours(y);
        return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + number(width) +
               "\" height=\"" + number(y + 24) +
               "\" font-family=\"sans-serif\" font-size=\"11\">\n"
               "<defs><pattern id=\"sold\" width=\"6\" height=\"6\" "
               "patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">"
               "<rect width=\"6\" height=\"6\" fill=\"#cfe3f5\"/>"
               "<line x1=\"0\" y1=\"0\" x2=\"0\" y2=\"6\" stroke=\"#2a6cab\" "
               "stroke-width=\"2\"/></pattern></defs>\n"
               "<style>.reserved{fill:url(#sold);stroke:#2a6cab}.runs{fill:#7cb87c;stroke:#3c783c}"
               ".likely{fill:#e4efe4;stroke:#9cbf9c}.axis{stroke:#bbb;stroke-width:.5}</style>\n"
               "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n" +
               body_ + "</svg>";
    }

  private:
    static constexpr double width = 1'000, left = 90, top = 12, row = 16, gap = 10;

    double x_of(double unix_s) const {
        return left + (unix_s - first_) / (last_ - first_) * (width - left - 12);
    }
    void draw(const Bar& b, double y) {
        const double x = x_of(b.from), wide = std::max(1.0, x_of(b.to) - x);
        const std::string at = number(y + static_cast<double>(b.row) * row);
        body_ += "<rect class=\"" + escaped(b.kind) + "\" x=\"" + number(x) + "\" y=\"" + at +
                 "\" width=\"" + number(wide) + "\" height=\"" +
                 number(static_cast<double>(b.cpus) * row - 1) + "\"" +
                 (b.end_known ? "" : " stroke-dasharray=\"3 2\"") + "><title>" + escaped(b.label) +
                 " " + clock(b.from) + " - " + (b.end_known ? clock(b.to) : "?") +
                 "</title></rect>\n";
        if (wide > 6.5 * static_cast<double>(b.label.size()))
            body_ += "<text x=\"" + number(x + 3) + "\" y=\"" +
                     number(y + static_cast<double>(b.row) * row + 11) + "\">" + escaped(b.label) +
                     "</text>\n";
    }
    void draw_hours(double y) {
        const double span = last_ - first_;
        double step = 600;
        for (const double s : {1'800.0, 3'600.0, 7'200.0, 14'400.0, 43'200.0, 86'400.0})
            if (span / step > 10) step = s;
        while (span / step > 100) step *= 10;
        for (double at = (static_cast<int64_t>(first_ / step) + 1) * step; at < last_; at += step)
            body_ += "<line class=\"axis\" x1=\"" + number(x_of(at)) + "\" x2=\"" +
                     number(x_of(at)) + "\" y1=\"0\" y2=\"" + number(y) + "\"/><text x=\"" +
                     number(x_of(at) + 2) + "\" y=\"" + number(y + 12) + "\">" + clock(at) +
                     "</text>\n";
    }

    std::map<std::string, Lane> lanes_;
    double first_ = 0, last_ = 0;
    std::string body_;
};

Result<std::string> plan_svg(const Answer& answer) {
    std::map<std::string, Lane> lanes;
    for (const std::string& part : answer) {
        const Json list = parse_json(part);
        if (!list.is_array()) return fail("the daemon's answer is not a JSON list");
        for (const Json& s : list) {
            if (!s.contains("node")) continue;
            Lane& lane = lanes[field(s, "node")];
            lane.cpus = std::max<int64_t>(1, s.value("node_cpus", int64_t{1}));
            lane.bars.push_back({s.value("from_unix_s", 0.0), s.value("to_unix_s", 0.0),
                                 std::max<int64_t>(1, s.value("cpus", int64_t{1})),
                                 field(s, "kind"), field(s, "job"), s.value("end_known", false)});
        }
    }
    return Picture(std::move(lanes)).text();
}

// NODE off [at TIME]
Result<std::string> off_word(const std::string& text) {
    std::vector<std::string> words;
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find(' ', at), text.size());
        if (end > at) words.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    const bool timed = words.size() == 4 && words[2] == "at";
    if (words.size() < 2 || words[1] != "off" || (words.size() != 2 && !timed))
        return fail("--if: '" + text + "' is not NODE off, or NODE off at TIME");
    if (!valid_node_name(words[0])) return fail("--if: '" + words[0] + "' is not a node name");
    int64_t from = ::time(nullptr);
    if (timed) {
        TRY_ASSIGN(const Nanos at, parse_ahead(words[3]));
        from = at.ns / 1'000'000'000;
    }
    return "off=" + words[0] + "@" + std::to_string(from);
}

}  // namespace

Result<CtlQuestion> plan_question(std::span<char*> words, const PlanOptions& o) {
    if (!words.empty()) return fail("plan: unexpected argument '" + std::string(words[0]) + "'");
    CtlQuestion question{"plan", {}, o.svg ? plan_svg : plan_text};
    if (!o.until.empty()) {
        auto until = parse_ahead(o.until);
        if (!until) return wrap("--until", until.error());
        question.args.push_back("until=" + std::to_string(until->ns / 1'000'000'000));
    }
    if (!o.what_if.empty()) {
        TRY_ASSIGN(std::string off, off_word(o.what_if));
        question.args.push_back(std::move(off));
    }
    return question;
}

}  // namespace souk::tools
