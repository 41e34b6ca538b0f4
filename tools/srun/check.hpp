// SPDX-License-Identifier: GPL-2.0-or-later
// srun --check: whether a process, or a program, could move as a job, and what holds it. Nothing is
// submitted or paid. A program is run on this machine for a moment, without input, and its output
// goes nowhere; then it is ended.
#pragma once

#include "tools/srun/options.hpp"

namespace souk::tools {

// The exit status of srun: 0 if it could move, 1 if not. An error: that could not be found out.
Result<int> check_program(const SrunOptions& options);

}  // namespace souk::tools
