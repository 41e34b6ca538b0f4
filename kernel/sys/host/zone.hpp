// SPDX-License-Identifier: GPL-2.0-or-later
// Local time in a time zone of this machine's database (tzdata): by the C library, which knows one
// zone at a time; for a program's only thread that asks for the time of day.
#pragma once

#include <cstdint>
#include <string>

#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"

namespace souk {

// "" is this machine's own. Errors: the database has no such zone.
Status known_zone(const std::string& zone);
// Counts seconds from Monday 00:00, as clocks in that zone show it; an unknown zone is taken for
// UTC.
int32_t second_of_week(const std::string& zone, int64_t unix_s);
// Returns how far clocks in that zone are ahead of UTC then.
Nanos ahead_of_utc(const std::string& zone, int64_t unix_s);

}  // namespace souk
