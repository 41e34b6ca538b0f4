// SPDX-License-Identifier: GPL-2.0-or-later
// Reads texts that a user gives, and checks those that others read on their terminals. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/result.hpp"

namespace souk {

// Checks a name for people. It has 1 to `bytes_max` bytes of UTF-8 without control characters (C0,
// DEL, C1), format characters (right-to-left marks and the like, which change how the text around
// them is shown), line or paragraph separators.
Status check_label(std::string_view text, size_t bytes_max);
// Mends a text that we cannot refuse: replaces such characters by blanks, and such bytes where the
// text is no UTF-8. The length stays the same.
std::string blank_controls(std::string_view text);
// Cuts a list at its commas; one empty part of an empty text.
std::vector<std::string> comma_parts(std::string_view text);

}  // namespace souk
