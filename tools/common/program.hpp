// SPDX-License-Identifier: GPL-2.0-or-later
// Runs another program of this installation to its end.
#pragma once

#include <string>
#include <vector>

#include "kernel/base/result.hpp"

namespace souk::tools {

// Runs `name` (kernel/sys/host/installation.hpp says where it lies) and returns what it writes to
// its stdout. Errors: it cannot be started, or it failed: then its own error, with the code.
Result<std::string> output_of_sibling(const std::string& name, std::vector<std::string> arguments);

}  // namespace souk::tools
