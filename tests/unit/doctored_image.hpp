// SPDX-License-Identifier: GPL-2.0-or-later
// Images of jobs of root's that say that they are a plain user's: a node whose root is hostile
// makes such ones.
#pragma once

#include <string>

#include "tests/unit/move_rig.hpp"
#include "tests/unit/temp_dir.hpp"

namespace souk::unit {

inline constexpr uint32_t doctored_user = 4321;

// Runs a script in Python up to "ready", as root, freezes it into `images` and makes each of its
// processes doctored_user's. `names`: " OLD NEW": the file of the old name gets the new one.
void freeze_as_users(const std::string& script, JobOutput& output, const TempDir& images,
                     const std::string& names = "");

}  // namespace souk::unit
