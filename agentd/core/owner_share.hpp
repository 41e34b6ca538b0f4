// SPDX-License-Identifier: GPL-2.0-or-later
// OwnerShare: the part of the machine that guests get at most, while its owner is here and at some
// hours of his week; he keeps the rest. Pure; the caller knows the time zone, and whether he is
// here.
//
//   text   := "" | rule { ";" rule }
//   rule   := when "=" amount { "," amount }
//   when   := "here" | "always" | frame     a frame as of time_frames.hpp
//   amount := NUMBER "%"                    of the machine's CPUs and of its memory
//           | NUMBER "%" ("cpus" | "memory")
//           | NUMBER "cpus" | SIZE "memory"
//
// "here = 0.5 cpus, 50% memory; mon-fri 8:00-18:00 = 75%". Where several rules hold, the least of
// each holds; what no rule names is all that is offered.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/result.hpp"
#include "kernel/base/time_frames.hpp"

namespace souk {

// CPUs in thousandths.
struct MachineSize {
    int64_t cpu_milli = 1'000;
    int64_t memory_mb = 1;
    bool operator==(const MachineSize&) const = default;
};

class OwnerShare {
  public:
    // The least that is a share: less of a CPU the kernel does not give out by.
    static constexpr int64_t cpu_milli_min = 10;
    static constexpr int64_t memory_mb_min = 1;

    struct Rule {
        bool here = false;  // while he is here; else `frames`
        TimeFrames frames;
        // A share of the machine in thousandths of a percent, or a size. None: it is not named.
        std::optional<int64_t> cpu_part, cpu_milli, memory_part, memory_mb;
        std::string text;  // of the whole rule
    };
    OwnerShare() = default;  // all that is offered
    // Errors: one line, naming the rule that is wrong.
    static Result<OwnerShare> parse(std::string_view text);
    // That no rule says more than the machine has, nor less than the least.
    Status fits(const MachineSize& machine) const;

    // parse(text()) gives the same rules.
    const std::string& text() const { return text_; }
    bool empty() const { return rules_.empty(); }
    const std::vector<Rule>& rules() const { return rules_; }
    // There is a rule for while he is here.
    bool when_here() const;
    // The part of the offer that guests get.
    MachineSize of(const MachineSize& machine, const MachineSize& offered, int32_t second_of_week,
                   bool here) const;
    // The rules that hold, as text; empty: none.
    std::string holds(int32_t second_of_week, bool here) const;
    // Seconds until other rules hold by the clock: 1 to week_s; 0: never.
    int32_t to_next_edge(int32_t second_of_week) const;

  private:
    std::string text_;
    std::vector<Rule> rules_;
};

}  // namespace souk
