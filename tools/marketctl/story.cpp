// SPDX-License-Identifier: GPL-2.0-or-later
#include <time.h>

#include <cmath>
#include <cstdio>

#include "tools/common/entries.hpp"
#include "tools/marketctl/views.hpp"

namespace souk::tools {
namespace {

std::string local_ms(const Json& step) {
    const double at = step.value("at_unix_s", 0.0);
    const auto seconds = static_cast<time_t>(std::floor(at));
    tm local{};
    char text[48];
    ::localtime_r(&seconds, &local);
    const size_t n = ::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
    std::snprintf(text + n, sizeof text - n, ".%03d",
                  static_cast<int>((at - static_cast<double>(seconds)) * 1000));
    return text;
}

// The parts of a move's pause, one after the other.
std::string move_of(const Json& s) {
    std::string text = ": " + field(s, "form");
    if (s.contains("ahead_bytes")) text += ", " + bytes(s, "ahead_bytes") + " ahead";
    if (s.contains("bytes"))
        text += ", " + bytes(s, "bytes") + (s.contains("ahead_bytes") ? " while it stood" : "");
    if (!s.contains("pause_ms")) return text;
    text += ", pause " + milliseconds(s, "pause_ms");
    std::string parts;
    for (const char* part : {"sent", "restored", "decided", "running"})
        if (const std::string key = std::string(part) + "_ms"; s.contains(key))
            parts +=
                std::string(parts.empty() ? "" : ", ") + part + " " + milliseconds(s, key.c_str());
    if (!parts.empty()) text += " (" + parts + ")";
    return s.contains("total_ms") ? text + ", " + milliseconds(s, "total_ms") + " in all" : text;
}

std::string told(const Json& s) {
    const std::string step = field(s, "step");
    std::string text;
    if (s.contains("from") && step == "moved")
        text += " from " + field(s, "from") + " to " + field(s, "node") + move_of(s);
    else if (s.contains("node"))
        text += " on " + field(s, "node");
    if (s.contains("price"))
        text += (step == "priced" ? " at " : ", at most ") + field(s, "price") + " per CPU-hour";
    if (s.contains("bytes") && step != "moved") text += ", " + bytes(s, "bytes");
    if (s.contains("components")) text += ", one of " + field(s, "components") + " at one cut";
    if (s.contains("skew_ms")) text += ", stopped within " + milliseconds(s, "skew_ms");
    if (step == "resumed" && s.contains("total_ms")) text += ", in " + milliseconds(s, "total_ms");
    if (s.contains("why")) text += ": " + field(s, "why");
    if (s.contains("why_code")) text += " [" + field(s, "why_code") + "]";
    if (s.contains("count")) text += " (the last of " + field(s, "count") + ")";
    return text;
}

// Writes the story. CRIU's own words are shown only to a user who asks for them.
Result<std::string> told_story(const Answer& answer, bool verbose) {
    TRY_ASSIGN(const Json story, parse_object(answer));
    const uint64_t left_out = story.value("left_out", uint64_t{0});
    const size_t first_kept = 8;  // those before what was left out
    std::string text;
    size_t i = 0;
    for (const Json& step : story.value("steps", Json::array())) {
        if (i++ == first_kept && left_out > 0)
            text += "... " + std::to_string(left_out) + " steps are left out ...\n";
        text += local_ms(step) + "  " + field(step, "step") + told(step) + "\n";
        if (verbose && step.contains("detail")) text += "    " + field(step, "detail") + "\n";
    }
    if (text.empty())
        return std::string("its story was not kept: it is from a version before that");
    text.pop_back();
    return text;
}

}  // namespace

Result<std::string> story_text(const Answer& answer) { return told_story(answer, false); }
Result<std::string> verbose_story_text(const Answer& answer) { return told_story(answer, true); }

}  // namespace souk::tools
