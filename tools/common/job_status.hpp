// SPDX-License-Identifier: GPL-2.0-or-later
// JobStatus: what srun shows of its job in one line: where it is, what it pays, what it has cost so
// far, and what became of it last. ScreenUse: whether such a line may stand on the terminal that
// the job writes to. Both pure.
#pragma once

#include <string>
#include <string_view>

#include "agentd/wire/messages.hpp"
#include "kernel/base/time.hpp"

namespace souk::tools {

class JobStatus {
  public:
    void meter(const wire::Meter& meter, Nanos now);
    void news(std::string text) { news_ = std::move(text); }

    // "n1.7 on n2 at 12.4 per CPU-hour, 0.031 so far; moved from n1 to n2". Of a home that says
    // nothing of money: the news.
    std::string line(const std::string& id, Nanos now) const;
    // "12.4 per CPU-hour, 0.031 so far"; empty: nothing is known of money.
    std::string money(Nanos now) const;
    Money cost(Nanos now) const;
    // The line says something else in a moment.
    bool changes() const { return known_ && meter_.phase != JobPhase::finished; }
    // Tells whether the price is another than at the last call.
    bool new_price();

  private:
    wire::Meter meter_;
    bool known_ = false;
    Nanos told_, since_;  // when the meter was told; since when the job is in its phase
    Money price_told_;
    std::string news_;
};

class ScreenUse {
  public:
    // Notes what the job has written to the terminal.
    void wrote(std::string_view bytes);
    // The cursor is at the beginning of an empty line, and the job has never moved it about.
    bool free() const { return line_start_ && !taken_; }

  private:
    enum class State : uint8_t { plain, escape, sequence } state_ = State::plain;
    bool line_start_ = true, taken_ = false;
};

}  // namespace souk::tools
