// SPDX-License-Identifier: GPL-2.0-or-later
// srun --notify: a process of the user's, which stays on this machine after srun has left, runs a
// command when the jobs have ended.
#pragma once

#include <string>
#include <vector>

#include "kernel/base/ids.hpp"
#include "kernel/base/result.hpp"
#include "tools/srun/options.hpp"

namespace souk::tools {

// Does nothing without --notify. Errors: the process cannot be started; the jobs go on.
Status notify_at_end(const SrunOptions& options, const std::string& socket,
                     const std::vector<JobId>& jobs);

}  // namespace souk::tools
