// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/base/time_frames.hpp"

#include <algorithm>
#include <array>

#include "kernel/base/check.hpp"

namespace souk {
namespace {

constexpr int32_t day_s = 24 * 3600;
constexpr std::array<std::string_view, 7> day_names = {"mon", "tue", "wed", "thu",
                                                       "fri", "sat", "sun"};
constexpr size_t text_max = 1024;

std::string_view trim(std::string_view s) {
    const size_t from = s.find_first_not_of(" \t");
    return from == std::string_view::npos ? std::string_view{}
                                          : s.substr(from, s.find_last_not_of(" \t") - from + 1);
}

std::string quoted(std::string_view s) { return "'" + std::string(s) + "'"; }

// Cuts the part before `mark` off the front of `rest`; the last part takes everything.
std::string_view cut(std::string_view& rest, char mark) {
    const size_t at = rest.find(mark);
    const std::string_view head = rest.substr(0, at);
    rest = at == std::string_view::npos ? std::string_view{} : rest.substr(at + 1);
    return head;
}

Result<int> parse_day(std::string_view name) {
    const auto it = std::find(day_names.begin(), day_names.end(), name);
    if (it == day_names.end())
        return fail(quoted(name) + " is no day; days are mon tue wed thu fri sat sun, or daily");
    return static_cast<int>(it - day_names.begin());
}

// One bit a day, Monday lowest.
Result<unsigned> parse_days(std::string_view text) {
    if (text == "daily") return 0x7fu;
    unsigned days = 0;
    const bool dangling = text.back() == ',';
    while (!text.empty()) {
        std::string_view part = cut(text, ',');
        const bool is_range = part.find('-') != std::string_view::npos;
        TRY_ASSIGN(const int first, parse_day(cut(part, '-')));
        int last = first;
        if (is_range) {
            TRY_ASSIGN(last, parse_day(part));
        }
        for (int day = first;; day = (day + 1) % 7) {
            days |= 1u << day;
            if (day == last) break;
        }
    }
    if (dangling) return fail("a day is missing after ','");
    return days;
}

// "HH:MM" or "H:MM" in seconds; 24:00 only as an end.
Result<int32_t> parse_time(std::string_view text, bool is_end) {
    const std::string padded = (text.size() == 4 ? "0" : "") + std::string(text);
    const auto digit = [&](size_t i) { return padded[i] >= '0' && padded[i] <= '9'; };
    const bool shape =
        padded.size() == 5 && padded[2] == ':' && digit(0) && digit(1) && digit(3) && digit(4);
    if (shape) {
        const int hour = (padded[0] - '0') * 10 + (padded[1] - '0'),
                  minute = (padded[3] - '0') * 10 + (padded[4] - '0');
        if (minute < 60 && (hour < 24 || (is_end && hour == 24 && minute == 0)))
            return hour * 3600 + minute * 60;
    }
    return fail(quoted(text) + " is no time of day; write HH:MM, for example 08:00");
}

struct Frame {
    unsigned days;
    int32_t from, length;
};

Result<Frame> parse_frame(std::string_view text) {
    if (text.empty())
        return fail("a time frame is empty; write for example 'daily 08:00-22:00', or 'always'");
    const size_t blank = text.find_last_of(" \t");
    Frame frame{0x7f, 0, 0};
    if (blank != std::string_view::npos) {
        TRY_ASSIGN(frame.days, parse_days(trim(text.substr(0, blank))));
    }
    std::string_view times = blank == std::string_view::npos ? text : text.substr(blank + 1);
    if (times.find('-') == std::string_view::npos)
        return fail(quoted(times) + " is no span of time; write HH:MM-HH:MM");
    TRY_ASSIGN(frame.from, parse_time(cut(times, '-'), false));
    TRY_ASSIGN(const int32_t to, parse_time(times, true));
    frame.length = to > frame.from ? to - frame.from : to + day_s - frame.from;
    return frame;
}

}  // namespace

Result<TimeFrames> TimeFrames::parse(std::string_view text) {
    if (text.size() > text_max)
        return fail("time frames are longer than " + std::to_string(text_max) + " characters");
    if (trim(text) == "always") return TimeFrames{};
    return parse_parts(text, false);
}

Result<TimeFrames> TimeFrames::parse_apart(std::string_view text) {
    if (text.size() > text_max || trim(text) == "always") return parse(text);
    return parse_parts(text, true);
}

Result<TimeFrames> TimeFrames::parse_parts(std::string_view text, bool apart) {
    TimeFrames frames;
    std::vector<Owned> spans;
    frames.text_.clear();
    for (bool more = true; more;) {
        more = text.find(';') != std::string_view::npos;
        const std::string_view part = trim(cut(text, ';'));
        TRY_ASSIGN(const Frame frame, parse_frame(part));
        if (apart && frame.length == day_s && frame.from != 0)
            return fail("frame " + quoted(part) +
                        " ends when it begins; write 00:00-24:00 for a whole day");
        const size_t number = frames.parts_.size();
        frames.parts_.emplace_back(part);
        for (int day = 0; day < 7; ++day) {
            if (!(frame.days & (1u << day))) continue;
            const int32_t from = day * day_s + frame.from, to = from + frame.length;
            spans.push_back({{from, std::min(to, week_s)}, number});
            if (to > week_s) spans.push_back({{0, to - week_s}, number});  // Sunday night
        }
        frames.text_ += (frames.text_.empty() ? "" : "; ") + std::string(part);
    }
    std::sort(spans.begin(), spans.end());
    const Owned* before = nullptr;
    for (const Owned& o : spans) {
        const Span& s = o.span;
        if (apart && before && s.from < before->span.to)
            return fail("frames " + quoted(frames.parts_[before->number]) + " and " +
                        quoted(frames.parts_[o.number]) + " overlap");
        before = &o;
        if (!frames.spans_.empty() && s.from <= frames.spans_.back().to)
            frames.spans_.back().to = std::max(frames.spans_.back().to, s.to);
        else
            frames.spans_.push_back(s);
    }
    if (frames.spans_.front() == Span{0, week_s}) frames.spans_.clear();
    return frames;
}

bool TimeFrames::contains(int32_t second_of_week) const {
    MUST(second_of_week >= 0 && second_of_week < week_s);
    if (always()) return true;
    return std::any_of(spans_.begin(), spans_.end(), [&](const Span& s) {
        return s.from <= second_of_week && second_of_week < s.to;
    });
}

int32_t TimeFrames::to_next_edge(int32_t second_of_week) const {
    MUST(second_of_week >= 0 && second_of_week < week_s);
    if (always()) return 0;
    // no edge between Sunday and Monday
    const bool wraps = spans_.front().from == 0 && spans_.back().to == week_s;
    int32_t nearest = week_s;
    const auto edge = [&](int32_t at) {
        if (wraps && at % week_s == 0) return;
        const int32_t away = (at - second_of_week + week_s) % week_s;
        nearest = std::min(nearest, away == 0 ? week_s : away);
    };
    for (const Span& s : spans_) {
        edge(s.from);
        edge(s.to);
    }
    return nearest;
}

}  // namespace souk
