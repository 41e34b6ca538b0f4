// SPDX-License-Identifier: GPL-2.0-or-later
// How souk-root may start souk-files, which has a form for each thing that it does
// (agentd/files/program): agentd names the words. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "kernel/base/launch.hpp"
#include "kernel/base/result.hpp"

namespace souk::root {

// Whether souk-files may be started so: as one of its forms (agentd/files/program).
Status check_files_words(const std::vector<std::string>& words, size_t descriptors, bool session);
// As whom it then runs; not known: as nobody in particular. `owns`: who that is, his job began
// here.
struct FilesUser {
    RunsAs as;
    bool owns = false;
};
FilesUser files_user(const std::vector<std::string>& words);

}  // namespace souk::root
