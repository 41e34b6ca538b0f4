// SPDX-License-Identifier: GPL-2.0-or-later
// Sockets whose names a restore has taken over (checkpoint/criu_sockets.c).
#pragma once

#include "kernel/base/result.hpp"

namespace souk {

inline constexpr const char* kept_sockets_name = "souk-sockets";

// runs: the restored job runs for good, and what had the names before is removed. Else each gets
// its name back. Whatever is not as the list in that image's directory says stays as it is. The
// list is removed; without one nothing is done.
Status settle_sockets(int image, bool runs);
bool has_kept_sockets(int image);

}  // namespace souk
