// SPDX-License-Identifier: GPL-2.0-or-later
// A time that is to come, as people say it to a tool.
#pragma once

#include <string>

#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"

namespace souk::tools {

// A moment by this machine's clock and zone (9:30: the next; 2026-12-24T18:00), or a span from now
// (90m), as Unix time. Errors: it is neither, is over, or is too far ahead.
Result<Nanos> parse_ahead(const std::string& text);

}  // namespace souk::tools
