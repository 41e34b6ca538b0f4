// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/web/pictures.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "tools/common/job_rows.hpp"

namespace souk::tools::web {
namespace {

// A picture's own units; a window stretches it, and style.css sets the text beside it.
constexpr double line_width = 600, line_height = 80;
constexpr double lane_height = 22, lanes_width = 800;
constexpr int parts = 4;           // of an axis
constexpr size_t first_steps = 8;  // those before what a story leaves out

Html& attribute(Html& h, Markup name, double value) {
    return h.markup(" ").markup(name).markup("=\"").number(value).markup("\"");
}

const char* class_of(Bar::Kind kind) {
    switch (kind) {
        case Bar::Kind::waits: return "wait";
        case Bar::Kind::runs: return "run";
        case Bar::Kind::frozen: return "frozen";
        case Bar::Kind::stopped: return "stands";
        case Bar::Kind::unknown: return "unknown";
    }
    return "";
}

std::string clock_text(double at, double span) {
    const Json one = {{"at", at}};
    std::string all = local_time(one, "at");
    if (all.size() < 19) return all;
    return span > 2 * 86'400 ? all.substr(5, 5) : span > 600 ? all.substr(11, 5) : all.substr(11);
}

// Draws lines from top to bottom where the times below are.
void grid(Html& h, double width, double height) {
    for (int i = 1; i < parts; ++i) {
        h.markup("<line class=\"grid\" vector-effect=\"non-scaling-stroke\"");
        attribute(h, "x1", width * i / parts);
        attribute(h, "x2", width * i / parts);
        attribute(h, "y1", 0);
        attribute(h, "y2", height).markup("/>");
    }
}

// Writes the times below a picture, and the zone with the last one.
void times(Html& h, double from, double to) {
    const double span = to - from;
    h.markup("<div class=\"ticks\">");
    for (int i = 0; i <= parts; ++i) {
        h.markup("<span>").text(clock_text(from + span * i / parts, span));
        if (i == parts) h.markup(" ").text(zone_of(to));
        h.markup("</span>");
    }
    h.markup("</div></figure>");
}

// The life of a job, step by step.
class Story {
  public:
    explicit Story(double now) : now_(now) {}

    void take(const Json& step, bool after_gap) {
        const double at = step.value("at_unix_s", 0.0);
        const std::string what = step.value("step", ""), node = step.value("node", "");
        if (lanes_.from == 0) lanes_.from = at;
        if (after_gap) begin(Bar::Kind::unknown, last_, lanes_of_bar());
        last_ = at;
        using K = Bar::Kind;
        if (what == "submitted" || what == "went_back")
            begin(K::waits, at, lane("wait"));
        else if (what == "started" || what == "thawed" || what == "resumed" || what == "moved")
            begin(K::runs, at, node.empty() ? lanes_of_bar() : lane(node));
        else if (what == "frozen")
            begin(K::frozen, at, lanes_of_bar());
        else if (what == "stopped")
            begin(K::stopped, at, lanes_of_bar());
        else if (what == "finished")
            end(at);
        if (what != "priced" && !lanes_.names.empty())
            lanes_.marks.push_back({lanes_of_bar(), at, what + (node.empty() ? "" : " " + node)});
    }
    Lanes take_lanes() {
        end(now_);
        for (const Bar& bar : lanes_.bars) lanes_.to = std::max(lanes_.to, bar.to);
        for (const Mark& mark : lanes_.marks) lanes_.to = std::max(lanes_.to, mark.at);
        return std::move(lanes_);
    }

  private:
    size_t lane(const std::string& name) {
        const auto at = std::find(lanes_.names.begin(), lanes_.names.end(), name);
        const auto n = static_cast<size_t>(at - lanes_.names.begin());
        if (at == lanes_.names.end()) lanes_.names.push_back(name);
        return n;
    }
    size_t lanes_of_bar() const { return open_ ? open_->lane : last_lane_; }
    void begin(Bar::Kind kind, double at, size_t lane) {
        end(at);
        last_lane_ = lane;
        if (lanes_.names.empty()) lanes_.names.emplace_back("wait");
        open_ = Bar{lane, at, at, kind, "", ""};
    }
    void end(double at) {
        if (!open_) return;
        open_->to = std::max(open_->from, at);
        const Json one = {{"s", open_->to - open_->from}};
        open_->label =
            std::string(class_of(open_->kind)) +
            (lanes_.names[open_->lane] == "wait" ? "" : " on " + lanes_.names[open_->lane]) + ", " +
            three_digits(duration(one, "s"));
        lanes_.bars.push_back(*std::exchange(open_, std::nullopt));
    }

    Lanes lanes_;
    std::optional<Bar> open_;
    size_t last_lane_ = 0;
    double now_, last_ = 0;
};

}  // namespace

Html line_picture(const std::vector<Stretch>& stretches, double from, double to,
                  const std::string& label) {
    double most = 0, before = 0;
    for (const Stretch& s : stretches) most = std::max(most, s.value);
    const Json top = {{"most", most}};
    Html h;
    h.markup("<figure class=\"plot\"><figcaption>").text(label).markup("</figcaption>");
    h.markup("<div class=\"scale\"><span>").text(most > 0 ? money_figure(top, "most") : "-");
    h.markup("</span><span>0</span></div>");
    h.markup(
        "<svg class=\"line\" role=\"img\" viewBox=\"0 0 600 80\" preserveAspectRatio=\"none\"");
    h.markup(" aria-label=\"").text(label).markup("\">");
    grid(h, line_width, line_height);
    const double span = std::max(to - from, 1.0);
    bool open = false;
    for (const Stretch& s : stretches) {
        const bool gap = open && s.from > before + 1;
        if (open && (gap || s.value < 0)) {
            h.markup("\"/>");
            open = false;
        }
        if (s.value < 0 || s.to <= from) continue;
        if (!open) h.markup("<polyline points=\"");
        open = true;
        before = s.to;
        const double y = most > 0 ? (line_height - 4) * (1 - s.value / most) + 2 : line_height - 2;
        for (const double at : {s.from, s.to}) {
            const double part = std::clamp((at - from) / span, 0.0, 1.0);
            h.number(part * line_width).markup(",").number(y).markup(" ");
        }
    }
    if (open) h.markup("\"/>");
    h.markup("</svg>");
    return times(h, from, to), h;
}

Html lanes_picture(const Lanes& lanes, const std::string& label) {
    const double height = lane_height * static_cast<double>(lanes.names.size());
    const double span = std::max(lanes.to - lanes.from, 1e-3);
    const auto x_of = [&](double at) {
        const double part = std::clamp((at - lanes.from) / span, 0.0, 1.0);
        return part * lanes_width;
    };
    Html h;
    h.markup("<figure class=\"plot\"><div class=\"names\">");
    for (const std::string& name : lanes.names) h.markup("<span>").text(name).markup("</span>");
    h.markup("</div><svg class=\"lanes\" role=\"group\" preserveAspectRatio=\"none\"");
    attribute(h, "height", height).markup(" viewBox=\"0 0 800 ").number(height);
    h.markup("\" aria-label=\"").text(label).markup("\">");
    grid(h, lanes_width, height);
    for (const Bar& bar : lanes.bars) {
        const double x = x_of(bar.from);
        if (!bar.address.empty())
            h.markup("<a href=\"")
                .text(bar.address)
                .markup("\" aria-label=\"")
                .text(bar.label)
                .markup("\">");
        h.markup("<rect class=\"").text(class_of(bar.kind)).markup("\"");
        attribute(h, "x", x);
        attribute(h, "y", lane_height * static_cast<double>(bar.lane) + 3);
        attribute(h, "width", std::max(1.0, x_of(bar.to) - x));
        attribute(h, "height", lane_height - 6).markup("><title>").text(bar.label);
        h.markup("</title></rect>");
        if (!bar.address.empty()) h.markup("</a>");
    }
    for (const Mark& mark : lanes.marks) {
        const double top = lane_height * static_cast<double>(mark.lane);
        h.markup("<line class=\"mark\" vector-effect=\"non-scaling-stroke\"");
        attribute(h, "x1", x_of(mark.at));
        attribute(h, "x2", x_of(mark.at));
        attribute(h, "y1", top + 1);
        attribute(h, "y2", top + lane_height - 1);
        h.markup("><title>").text(mark.label).markup("</title></line>");
    }
    h.markup("</svg>");
    return times(h, lanes.from, lanes.to), h;
}

Lanes lanes_of_story(const Json& story, double now) {
    Story told(now);
    const uint64_t left_out = story.value("left_out", uint64_t{0});
    size_t i = 0;
    for (const Json& step : story.value("steps", Json::array()))
        told.take(step, i++ == first_steps && left_out > 0);
    return told.take_lanes();
}

}  // namespace souk::tools::web
