// SPDX-License-Identifier: GPL-2.0-or-later
// A job script: a file that begins with "#!" and has lines "#SOUK OPTIONS" among the comments that
// open it. What they say counts as if it stood on srun's command line, before what stands there.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/result.hpp"

namespace souk::tools {

struct ScriptLine {
    size_t number = 0;  // from 1 on
    std::vector<std::string> words;
};
struct Script {
    std::vector<ScriptLine> lines;  // the #SOUK lines that say something, in their order
    size_t sbatch_line = 0;         // the first that is for Slurm; 0: none is
};

// Reads the #SOUK lines of a script; none if the file is no script. Blanks separate words; within '
// or " they do not. Errors: a quote that does not end, with the file and the number of its line.
Result<Script> read_script(const std::string& file);
// Does the same with the script's text. Pure.
Result<Script> script_of(std::string_view text);

}  // namespace souk::tools
