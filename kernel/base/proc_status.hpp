// SPDX-License-Identifier: GPL-2.0-or-later
// Reads /proc/PID/status (proc(5)), in which the kernel writes a line "NAME:\tVALUE" for each fact.
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "kernel/base/number.hpp"

namespace souk {

// Returns the value; nothing if this kernel does not tell it. The first line never matches: it is
// the program's name, which the program chooses.
inline std::optional<std::string_view> status_line(std::string_view status, std::string_view name) {
    for (size_t end = status.find('\n'); end != status.npos;) {
        const size_t at = end + 1;
        end = status.find('\n', at);
        const std::string_view line = status.substr(at, end - at);
        if (line.starts_with(name) && line.substr(name.size()).starts_with(":\t"))
            return line.substr(name.size() + 2);
    }
    return std::nullopt;
}

// A process has a number in each PID namespace from the reader's down (NSpid).
struct StatusPids {
    int32_t own = 0;     // in its own namespace
    bool below = false;  // that is another one than the reader's
};
// Returns nothing if this kernel does not tell.
inline std::optional<StatusPids> pids_of_status(std::string_view status) {
    const auto numbers = status_line(status, "NSpid");
    if (!numbers) return std::nullopt;
    const size_t last = numbers->find_last_of(" \t");
    const auto own = whole_number<int32_t>(numbers->substr(last == numbers->npos ? 0 : last + 1));
    if (!own) return std::nullopt;
    return StatusPids{*own, last != numbers->npos};
}

}  // namespace souk
