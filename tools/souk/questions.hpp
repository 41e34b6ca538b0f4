// SPDX-License-Identifier: GPL-2.0-or-later
// What souk setup asks a person at a terminal.
#pragma once

#include <string>
#include <vector>

#include "kernel/base/result.hpp"

namespace souk {

// Standard input and output are a terminal.
bool somebody_is_there();
// The line that is typed, without blanks around it; an empty one means `otherwise`. Errors: the
// input ends, or `otherwise` is empty and so are three answers.
Result<std::string> ask_person(const std::string& question, const std::string& otherwise);
// One of these; what else is typed is asked again, three times in all.
Result<std::string> ask_person(const std::string& question, const std::vector<std::string>& words,
                               const std::string& otherwise);

}  // namespace souk
