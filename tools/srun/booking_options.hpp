// SPDX-License-Identifier: GPL-2.0-or-later
// The options of srun that book a place for a stated time, hold one without a program, or run a
// program inside one.
#pragma once

#include <string>
#include <vector>

#include "tools/srun/options.hpp"

namespace souk::tools {

std::vector<Option> booking_options(SrunOptions& options);
// Sets the program of a place that is held without one. Returns what is wrong with these options;
// empty: nothing. `quotes`: nothing is submitted.
std::string wrong_with_booking(SrunOptions& options, bool changes, bool quotes);

}  // namespace souk::tools
