// SPDX-License-Identifier: GPL-2.0-or-later
// Sockets whose names a restore has taken over (checkpoint/criu_sockets.c).
#pragma once

#include <string>

namespace souk {

inline constexpr const char* kept_sockets_name = "souk-sockets";

// runs: the restored job runs for good, and what had the names before is removed. Else each gets
// its name back. Whatever is not as the list of that image directory says stays as it is; without a
// list nothing is done.
void settle_sockets(int parent, const std::string& image, bool runs);

}  // namespace souk
