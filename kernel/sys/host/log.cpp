// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/host/log.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>

#include "kernel/sys/net/socket.hpp"

namespace souk {
namespace {

constexpr size_t line_bytes_max = 4096;
constexpr int write_wait_ms_max = 100;

// JOURNAL_STREAM is "DEVICE:INODE" of the stream that systemd gave as stderr.
bool is_journal(int fd) {
    const char* stream = getenv("JOURNAL_STREAM");
    struct stat st {};
    if (stream == nullptr || fstat(fd, &st) != 0) return false;
    return std::to_string(st.st_dev) + ":" + std::to_string(st.st_ino) == stream;
}

const char* level_name(Level level) {
    switch (level) {
        case Level::error: return "error: ";
        case Level::warning: return "warning: ";
        case Level::notice:
        case Level::info: return "";
        case Level::debug: return "debug: ";
    }
    return "";
}

void append_escaped(std::string& out, std::string_view text, bool quoted) {
    constexpr char digits[] = "0123456789abcdef";
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '\n')
            out += "\\n";
        else if (c == '\t')
            out += "\\t";
        else if (byte < 0x20 || byte == 0x7f)
            out += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
        else if (quoted && (c == '"' || c == '\\'))
            out += {'\\', c};
        else
            out += c;
    }
}

bool needs_quotes(std::string_view text) {
    return text.empty() || text.find_first_of(" \"=\\") != std::string_view::npos;
}

}  // namespace

std::string format_log_line(bool journal, std::string_view time, std::string_view program,
                            Level level, std::string_view message, const Fields& fields) {
    std::string out;
    if (journal) {
        out += {'<', static_cast<char>('0' + static_cast<int>(level)), '>'};
    } else {
        if (!time.empty()) out += std::string(time) + " ";
        if (!program.empty()) out += std::string(program) + ": ";
        out += level_name(level);
    }
    append_escaped(out, message, false);
    for (const Field& field : fields) {
        out += " ";
        append_escaped(out, field.name, false);
        out += "=";
        const bool quoted = needs_quotes(field.value);
        if (quoted) out += '"';
        append_escaped(out, field.value, quoted);
        if (quoted) out += '"';
    }
    if (out.size() > line_bytes_max - 1) out.replace(line_bytes_max - 4, std::string::npos, "...");
    out += '\n';
    return out;
}

// https://systemd.io/JOURNAL_NATIVE_PROTOCOL: NAME=value lines. No value holds a newline here, as
// control characters are escaped.
std::string format_journal_entry(std::string_view program, Level level, std::string_view message,
                                 const Fields& fields) {
    // without <N>
    std::string out = "MESSAGE=" + format_log_line(true, "", "", level, message, fields).substr(3);
    out += "PRIORITY=" + std::to_string(static_cast<int>(level)) + "\n";
    if (!program.empty()) out += "SYSLOG_IDENTIFIER=" + std::string(program) + "\n";
    for (const Field& field : fields) {
        for (const char c : field.name)
            if (isalnum(static_cast<unsigned char>(c)) || c == '_')
                out += static_cast<char>(toupper(static_cast<unsigned char>(c)));
        out += '=';
        append_escaped(out, field.value.substr(0, line_bytes_max), false);
        out += '\n';
    }
    return out;
}

namespace {

// Returns no socket if no journal listens; then lines go to stderr.
Fd open_journal(const std::string& path) {
    const auto address = path.empty() ? Result<Address>(fail("")) : Address::parse("unix:" + path);
    if (!address) return {};
    Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket || ::connect(socket.get(), address->raw(), address->raw_bytes()) < 0) return {};
    return socket;
}

}  // namespace

Log::Log(Options options) : options_(std::move(options)), for_journal_(is_journal(options_.fd)) {
    if (for_journal_) journal_ = open_journal(options_.journal);
}

// Returns false if the journal does not take it now, or is gone; stderr leads to it as well.
bool Log::to_journal(Level level, std::string_view message, const Fields& fields) {
    const std::string entry = format_journal_entry(options_.program, level, message, fields);
    return ::send(journal_.get(), entry.data(), entry.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(entry.size());
}

void Log::write(Level level, std::string_view message, const Fields& fields) {
    if (!shows(level)) return;
    if (journal_ && to_journal(level, message, fields)) return;
    char time[40] = "";
    if (!for_journal_) {
        timespec now{};
        clock_gettime(CLOCK_REALTIME, &now);
        tm local{};
        localtime_r(&now.tv_sec, &local);
        const size_t n = strftime(time, sizeof time, "%Y-%m-%d %H:%M:%S", &local);
        snprintf(time + n, sizeof time - n, ".%03d", static_cast<int>(now.tv_nsec / 1'000'000));
    }
    const std::string line =
        format_log_line(for_journal_, time, options_.program, level, message, fields);
    pollfd writable{options_.fd, POLLOUT, 0};
    // One wait per stall, not one per line.
    const int ready = poll(&writable, 1, stalled_ ? 0 : write_wait_ms_max);
    stalled_ = ready != 1 || (writable.revents & POLLOUT) == 0;
    if (stalled_) return;
    while (::write(options_.fd, line.data(), line.size()) < 0 && errno == EINTR) {
    }
}

void Log::limited(std::string_view key, Nanos now, Level level, std::string_view message,
                  const Fields& fields) {
    auto found = limits_.find(key);
    if (found == limits_.end()) {
        if (limits_.size() >= keys_max) key = "";
        found = limits_.try_emplace(std::string(key), Limit{now, 0, 0}).first;
    }
    Limit& limit = found->second;
    if (now - limit.since >= span) {
        if (limit.left_out > 0)
            write(level, "similar lines were left out",
                  {{"about", key}, {"count", limit.left_out}});
        limit = {now, 0, 0};
    }
    if (limit.lines == lines_max) {
        ++limit.left_out;
        return;
    }
    ++limit.lines;
    write(level, message, fields);
}

}  // namespace souk
