// SPDX-License-Identifier: GPL-2.0-or-later
// PriceCurve: what an owner asks at which hours of his week, where that is not his price for all
// others. Pure; the caller knows the time zone.
//
//   text := "" | rule { ";" rule }
//   rule := frame "=" price           a frame as of time_frames.hpp, a price per CPU-hour
//
// "mon-fri 8:00-18:00 = 40; daily 22:00-6:00 = 5". No two rules hold at the same time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/money.hpp"
#include "kernel/base/time_frames.hpp"

namespace souk {

class PriceCurve {
  public:
    struct Rule {
        TimeFrames frames;
        Money price;
        bool operator==(const Rule&) const = default;
    };
    PriceCurve() = default;  // no rule
    // Errors: one line, naming the rule that is wrong.
    static Result<PriceCurve> parse(std::string_view text);

    // parse(text()) gives the same rules.
    const std::string& text() const { return text_; }
    bool empty() const { return rules_.empty(); }
    const std::vector<Rule>& rules() const { return rules_; }
    // The rule that holds at this second of the week; null: none does.
    const Rule* at(int32_t second_of_week) const;
    // Seconds until another rule, or none, holds: 1 to week_s; 0: never.
    int32_t to_next_edge(int32_t second_of_week) const;

  private:
    Status apart() const;

    std::string text_;
    std::vector<Rule> rules_;
};

}  // namespace souk
