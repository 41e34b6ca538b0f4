// SPDX-License-Identifier: GPL-2.0-or-later
// souk setup asks a person at a terminal with these.
#pragma once

#include <string>
#include <vector>

#include "kernel/base/result.hpp"

namespace souk {

// Tells whether standard input and output are a terminal.
bool somebody_is_there();
// Returns the line that is typed, without blanks around it; an empty one means `otherwise`. Errors:
// the input ends, or `otherwise` is empty and so are three answers.
Result<std::string> ask_person(const std::string& question, const std::string& otherwise);
// Returns the one of these words that is typed. If something else is typed it asks again, three
// times in all.
Result<std::string> ask_person(const std::string& question, const std::vector<std::string>& words,
                               const std::string& otherwise);

}  // namespace souk
