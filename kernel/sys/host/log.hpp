// SPDX-License-Identifier: GPL-2.0-or-later
// Log: one line per event to stderr, "message name=value ...", with the time of day for people.
// Under systemd (JOURNAL_STREAM names our stderr) the line goes to the journal in its own protocol,
// each field also as one of the journal's (`journalctl JOB=n1.7`), in capitals; where the journal's
// socket is not there, to stderr with the <N> prefixes of sd-daemon(3). Made in main, passed by
// reference. A line is one write of at most 4 KiB; control characters are escaped, so that no input
// can forge a line. A reader that stops reading costs 100 ms once, then lines.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {

enum class Level : uint8_t { error = 3, warning = 4, notice = 5, info = 6, debug = 7 };

struct Field {
    std::string_view name;
    std::string value;
    Field(std::string_view field, std::string_view text) : name(field), value(text) {}
    Field(std::string_view field, const char* text) : name(field), value(text) {}
    Field(std::string_view field, const std::string& text) : name(field), value(text) {}
    Field(std::string_view field, int64_t number) : name(field), value(std::to_string(number)) {}
    Field(std::string_view field, int number) : name(field), value(std::to_string(number)) {}
    Field(std::string_view field, uint64_t number) : name(field), value(std::to_string(number)) {}
    Field(std::string_view field, const Error& error) : name(field), value(error.message) {}
};
using Fields = std::vector<Field>;

class Log {
  public:
    struct Options {
        int fd = 2;                     // borrowed
        Level level_max = Level::info;  // what is less urgent is dropped
        // stands before the message when it is for people; outlives the Log
        std::string_view program;
        std::string journal = "/run/systemd/journal/socket";
    };
    explicit Log(Options options);

    void error(std::string_view message, const Fields& fields = {}) {
        write(Level::error, message, fields);
    }
    void warning(std::string_view message, const Fields& fields = {}) {
        write(Level::warning, message, fields);
    }
    void notice(std::string_view message, const Fields& fields = {}) {
        write(Level::notice, message, fields);
    }
    void info(std::string_view message, const Fields& fields = {}) {
        write(Level::info, message, fields);
    }
    void debug(std::string_view message, const Fields& fields = {}) {
        write(Level::debug, message, fields);
    }
    void write(Level level, std::string_view message, const Fields& fields);
    // Logs what may repeat: at most `lines_max` lines in each `span` per `key` (names the call
    // site, perhaps with the object); the first line of a later span says how many were left out.
    void limited(std::string_view key, Nanos now, Level level, std::string_view message,
                 const Fields& fields = {});
    static constexpr unsigned lines_max = 5;
    static constexpr Nanos span = Nanos::from_s(60);
    static constexpr size_t keys_max = 256;  // more share one limit

    bool for_journal() const { return for_journal_; }
    bool shows(Level level) const { return level <= options_.level_max; }

  private:
    struct Limit {
        Nanos since;
        unsigned lines = 0;
        uint64_t left_out = 0;
    };
    bool to_journal(Level level, std::string_view message, const Fields& fields);

    Options options_;
    bool for_journal_;
    Fd journal_;            // connected to its socket; none: lines go to stderr
    bool stalled_ = false;  // the last line found no room within the wait
    std::map<std::string, Limit, std::less<>> limits_;
};

// One line as it is written, with its newline; `time` is empty for the journal. Pure.
std::string format_log_line(bool journal, std::string_view time, std::string_view program,
                            Level level, std::string_view message, const Fields& fields);

// Formats the same as one datagram of the journal's native protocol, without the time. Pure.
std::string format_journal_entry(std::string_view program, Level level, std::string_view message,
                                 const Fields& fields);

}  // namespace souk
