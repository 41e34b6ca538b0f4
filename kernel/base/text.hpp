// SPDX-License-Identifier: GPL-2.0-or-later
// What a text that a user gives and others read on their terminals may hold. Pure.
#pragma once

#include <string>
#include <string_view>

#include "kernel/base/result.hpp"

namespace souk {

// A name for people: 1 to `bytes_max` bytes of UTF-8 without control characters (C0, DEL, C1),
// format characters (right-to-left marks and the like, which change how the text around them is
// shown), line or paragraph separators.
Status check_label(std::string_view text, size_t bytes_max);
// For what cannot be refused: such characters as blanks, and such bytes where the text is no UTF-8.
// As long as it was.
std::string blank_controls(std::string_view text);

}  // namespace souk
