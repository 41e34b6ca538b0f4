// SPDX-License-Identifier: GPL-2.0-or-later
// What this process would hand to a program that it executes: the job gets the same.
#pragma once

#include <span>

#include "kernel/base/launch.hpp"
#include "kernel/base/result.hpp"

namespace souk::tools {

// The program is looked up as execvp does. Errors: there is no such program, it is not executable,
// or its arguments and environment are longer than a job's may be.
Result<LaunchSpec> capture_launch(std::span<char*> program);

}  // namespace souk::tools
