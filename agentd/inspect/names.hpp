// SPDX-License-Identifier: GPL-2.0-or-later
// The closed list of the files that an image may hold: those that CRIU (3.17 to 4.2) and Souk write
// of jobs of plain users. CRIU takes whatever lies beside these as its own and as root: policies of
// AppArmor, networks, mounts, and forms of its files from before. Pure.
#pragma once

#include <optional>
#include <string_view>

#include "agentd/inspect/answers.hpp"

namespace souk::inspect {

// A number in a name has no zero before it: there is one name for each.
bool is_file_of_a_job(std::string_view name);
// The question about a file of that name; nothing: nobody reads it before CRIU does.
std::optional<FileKind> question_about(std::string_view name);

}  // namespace souk::inspect
