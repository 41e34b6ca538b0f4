// SPDX-License-Identifier: GPL-2.0-or-later
// TimeFrames: when a node offers itself to the market, or a site lets others' jobs come, as a set
// of seconds of a local week. Pure; the caller knows the time zone. A second of the week counts
// from Monday 00:00 local time.
//
//   text   := "always" | frame { ";" frame }
//   frame  := [ days " " ] HH:MM "-" HH:MM       an end at or before the start lies on the next
//                                                day; 24:00 is allowed; the hour may have one digit
//                                                (8:00)
//   days   := "daily" | day [ "-" day ] { "," day [ "-" day ] }      mon tue wed thu fri sat sun
//
// "daily 08:00-22:00", "mon-fri 18:00-08:00; sat,sun 00:00-24:00". Frames may overlap and touch; a
// frame that crosses midnight belongs to the day on which it begins. What an owner says of them is
// taken only if no two overlap and none ends when it begins (`parse_apart`): else he has mistyped
// one of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/result.hpp"

namespace souk {

inline constexpr int32_t week_s = 7 * 24 * 3600;

class TimeFrames {
  public:
    TimeFrames() = default;  // always
    // Errors: one line, naming the part that is wrong.
    static Result<TimeFrames> parse(std::string_view text);
    // The same, and the frames neither overlap nor end when they begin. Errors name both.
    static Result<TimeFrames> parse_apart(std::string_view text);

    // As it was given, blanks tidied: parse(text()) gives the same frames.
    const std::string& text() const { return text_; }
    bool always() const { return spans_.empty(); }
    // The frames of the text, one by one; none: always.
    const std::vector<std::string>& parts() const { return parts_; }
    // Is this second of the week (0 to week_s - 1) inside a frame?
    bool contains(int32_t second_of_week) const;
    // Seconds until inside turns to outside or back, 1 to week_s; 0 if it never does.
    int32_t to_next_edge(int32_t second_of_week) const;

    bool operator==(const TimeFrames& o) const { return spans_ == o.spans_; }

  private:
    struct Span {
        int32_t from, to;  // [from, to) in seconds of the week, 0 <= from < to <= week_s
        auto operator<=>(const Span&) const = default;
    };
    struct Owned {
        Span span;
        size_t number;  // of the frame in the text
        auto operator<=>(const Owned&) const = default;
    };
    static Result<TimeFrames> parse_parts(std::string_view text, bool apart);

    std::string text_ = "always";
    std::vector<std::string> parts_;
    std::vector<Span> spans_;  // sorted, apart; empty: always
};

}  // namespace souk
