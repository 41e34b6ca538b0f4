// SPDX-License-Identifier: GPL-2.0-or-later
// The resource limits of the process that submits a job. What it says of them is its word only, and
// a capsule's PID 1 would set them as root.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "agentd/core/messages.hpp"
#include "kernel/base/result.hpp"

namespace souk {

// Hard limits by RLIMIT_...; of the text of a /proc/PID/limits. Pure.
Result<std::map<int32_t, uint64_t>> hard_limits(std::string_view text);
// None above the hard limit of that process, which must be this user's: a number may have become
// another's. Root's are as it says.
Status clamp_to_caller(std::vector<ResourceLimit>& limits, pid_t pid, uint32_t uid);

}  // namespace souk
