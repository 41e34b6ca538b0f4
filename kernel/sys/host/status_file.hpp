// SPDX-License-Identifier: GPL-2.0-or-later
// StatusFile: how a daemon is, in a small file that scripts read: lines NAME=VALUE that sh(1) takes
// with `.`, written anew every few seconds. Who opens it finds one whole state. It goes when the
// daemon ends in order; of one that died `time` stands still. What fails (a full disk, a directory
// that is missing) is one line in the log until the file is written again; the daemon goes on. It
// is not synced: it is for those who look now. Owned by the daemon, on its loop.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/sys/host/log.hpp"
#include "kernel/sys/loop/loop.hpp"

namespace souk {

struct StatusLine {
    StatusLine(std::string_view line, std::string_view text) : name(line), value(text) {}
    StatusLine(std::string_view line, const char* text) : name(line), value(text) {}
    StatusLine(std::string_view line, bool yes) : name(line), value(yes ? "1" : "0") {}
    template <std::integral T>
    StatusLine(std::string_view line, T number) : name(line), value(std::to_string(number)) {}
    std::string name, value;
};

// Values that are more than a word stand in quotes, as sh wants them; control characters become
// blanks, and a value ends after value_bytes_max.
inline constexpr size_t status_value_bytes_max = 1'000;
std::string status_text(const std::vector<StatusLine>& lines);

// Put there as a whole; empty: removed. A file of its own making: in a directory where others
// write, no link of theirs is followed.
Status put_status_file(const std::string& path, std::string_view text);

class StatusFile {
  public:
    using Collect = std::function<std::vector<StatusLine>()>;
    // Writes the file as put_status_file does, with the rights of whoever has them.
    using Put = std::function<Status(const std::string& path, std::string_view text)>;
    // Begins by every daemon's lines: format, daemon, version, pid, time (Unix), up_s.
    StatusFile(Loop& loop, Log& log, std::string_view daemon, std::string path, Nanos every,
               Collect collect, Put put = put_status_file);
    ~StatusFile();
    StatusFile(const StatusFile&) = delete;
    StatusFile& operator=(const StatusFile&) = delete;

    // Now. The loop does it every so often, for the first time when this has been made.
    void write();

  private:
    Loop& loop_;
    Log& log_;
    std::string daemon_, path_;
    Nanos every_, since_;
    Collect collect_;
    Put put_;
    bool trouble_ = false;
    Timer timer_;
};

}  // namespace souk
