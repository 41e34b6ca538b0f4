// SPDX-License-Identifier: GPL-2.0-or-later
// A job script: a file that begins with "#!" and has lines "#SOUK OPTIONS" among the comments that
// open it. What they say counts as if it stood on srun's command line, before what stands there.
#pragma once

#include <string>
#include <vector>

#include "kernel/base/result.hpp"

namespace souk::tools {

// The words of these lines, in their order; none: it is no such file. Blanks separate words; within
// ' or " they do not. Errors: a quote that does not end, with the number of its line.
Result<std::vector<std::string>> script_words(const std::string& file);
// Of its text. Pure.
Result<std::vector<std::string>> words_of_script(std::string_view text);

}  // namespace souk::tools
