// SPDX-License-Identifier: GPL-2.0-or-later
// Options of other schedulers that srun has not, and what does here what they do there. Pure.
#pragma once

#include <string>
#include <string_view>

namespace souk::tools {

// `option`: "--time" or "-t". Empty: it is none of theirs.
std::string slurm_option(std::string_view option);

}  // namespace souk::tools
