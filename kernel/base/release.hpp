// SPDX-License-Identifier: GPL-2.0-or-later
// Tells which versions (version.hpp) go together in one market. Releases are MAJOR.MINOR, and more
// numbers maybe.
#pragma once

#include <string_view>

namespace souk {

// The release of a version: what stands before its first blank. Empty: it is none.
std::string_view release_of(std::string_view version);
// Programs of these two versions may run in one market: their releases have the same MAJOR, and
// their MINOR is the same or one apart. False where one of them is no version.
bool may_run_together(std::string_view version, std::string_view other);

}  // namespace souk
