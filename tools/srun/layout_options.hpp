// SPDX-License-Identifier: GPL-2.0-or-later
// Parses srun's options that say how many components a job has, how large they are, and how they
// are to lie. Each function sets what `text` means; errors: what is wrong with it, one line.
#pragma once

#include <string_view>

#include "kernel/base/result.hpp"
#include "tools/srun/options.hpp"

namespace souk::tools {

inline constexpr int32_t gang_components_max = 1'024;  // HomeGangs::components_max

Status set_components(SrunOptions& o, const char* text);     // -N: a number, or a file
Status set_flexible(SrunOptions& o, std::string_view text);  // --flexible N[:MIN]
Status set_ordered(SrunOptions& o, std::string_view text);   // --ordered NODE:CPUS,...
Status set_near(SrunOptions& o, const char* text);           // --near[=BOUND,...]; null: no bound

}  // namespace souk::tools
