// SPDX-License-Identifier: GPL-2.0-or-later
// souk-root checks with this how souk-files may be started, which has a form for each thing that it
// does (agentd/files/program): agentd names the words. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "kernel/base/launch.hpp"
#include "kernel/base/result.hpp"

namespace souk::root {

// Fails if the words are none of the forms of souk-files (agentd/files/program).
Status check_files_words(const std::vector<std::string>& words, size_t descriptors, bool session);
// Names the user as whom souk-files then runs; not known: as nobody in particular. `owns`: that
// user's job began here.
struct FilesUser {
    RunsAs as;
    bool owns = false;
};
FilesUser files_user(const std::vector<std::string>& words);

}  // namespace souk::root
