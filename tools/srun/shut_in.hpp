// SPDX-License-Identifier: GPL-2.0-or-later
// Tells whether a program that srun tries has shut itself in with Landlock, which keeps it from
// moving.
#pragma once

#include <sys/types.h>

#include "kernel/base/result.hpp"

namespace souk::tools {

// Looks at a process with our ids and rights, its threads, and all that have come of it. They stand
// for a moment; where they may not be stopped, nothing is found.
Status look_closely(pid_t root);

}  // namespace souk::tools
