// SPDX-License-Identifier: GPL-2.0-or-later
// marketctl output: what is kept of a job's output at its home, read without taking anything from a
// terminal or a file, and without a key that could end the job.
#pragma once

#include <span>
#include <string>

#include "tools/common/ctl.hpp"

namespace souk::tools {

struct OutputOptions {
    bool follow = false;
    std::string lines;
    bool any() const { return follow || !lines.empty(); }
};

// ID: the bytes go to stdout and stderr as they come, those that follow too until the job has
// ended. Errors: the words are wrong.
Result<CtlQuestion> output_question(std::span<char*> words, const OutputOptions& options);

}  // namespace souk::tools
