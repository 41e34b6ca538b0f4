// SPDX-License-Identifier: GPL-2.0-or-later
// Shows on stderr what becomes of the job: as one line at the bottom of the terminal that is
// written anew (line), as a line each time (log), or not at all (never). The line goes away before
// anything else is written, and stays away while the job has the terminal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace souk::tools {

enum class StatusMode : uint8_t { never, line, log };

class StatusLine {
  public:
    explicit StatusLine(StatusMode mode) : mode_(mode) {}
    // Shows the newest news; `hidden`: the job writes to this terminal itself now.
    void show(std::string_view news, bool hidden);
    // Takes the line away, before other bytes go to the terminal, and at the end.
    void clear();
    bool shown() const { return shown_; }
    bool is_line() const { return mode_ == StatusMode::line; }
    bool logs() const { return mode_ == StatusMode::log; }

  private:
    StatusMode mode_;
    bool shown_ = false;
};

// Returns at most `columns` characters of the news, without control characters.
std::string status_text(std::string_view news, size_t columns);

}  // namespace souk::tools
