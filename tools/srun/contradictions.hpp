// SPDX-License-Identifier: GPL-2.0-or-later
// Options of srun that exclude or lack each other. Each function returns what is wrong, for people;
// empty: nothing.
#pragma once

#include <string>

#include "tools/srun/options.hpp"

namespace souk::tools {

// `no_output`: no job is submitted or attached to. `new_job`: none is attached to.
std::string wrong_with_files(const SrunOptions& options, bool no_output, bool new_job);
// Sets which component reads srun's input.
std::string wrong_with_gang(SrunOptions& options, bool no_new_job, bool quotes);
std::string wrong_with_waits(const SrunOptions& options, bool no_new_job);
std::string lacking_with(const SrunOptions& options);

}  // namespace souk::tools
