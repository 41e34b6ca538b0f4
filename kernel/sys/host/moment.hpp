// SPDX-License-Identifier: GPL-2.0-or-later
// A time of the calendar as configurations have it: "2026-11-30T12:00:00Z".
#pragma once

#include <ctime>
#include <string>

#include "kernel/base/time.hpp"

namespace souk {

inline std::string moment_text(Nanos unix_time) {
    const time_t seconds = unix_time.ns / 1'000'000'000;
    tm parts{};
    char text[40] = "";
    if (::gmtime_r(&seconds, &parts)) ::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return text;
}

}  // namespace souk
