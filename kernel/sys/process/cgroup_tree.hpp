// SPDX-License-Identifier: GPL-2.0-or-later
// Trees of control groups as the directories that they are, in one hierarchy: a path is the
// directory of a group.
#pragma once

#include <sys/types.h>

#include <cerrno>
#include <string>
#include <vector>

#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"
#include "kernel/sys/process/program.hpp"

namespace souk {

// The groups directly below one. A listing alone: to look at each of a group's some dozen files
// would make the kernel keep them all. (Every control group file system tells which are
// directories.)
Result<std::vector<std::string>> groups_in(const std::string& path);

// Children before parents.
Status for_each_below(const std::string& path, const auto& visit) {
    const auto names = groups_in(path);
    if (!names)
        return names.error().code == ENOENT ? Status{} : Status(tl::unexpected(names.error()));
    for (const std::string& name : *names) TRY(for_each_below(path + "/" + name, visit));
    return visit(path);
}

Status collect_pids(const std::string& path, std::vector<pid_t>& pids);

// The group's tree in one hierarchy, with what is left in it, ended by `end`.
Status remove_tree(const std::string& path, Nanos wait_max, const EndProgram& end);

// Makes the directories with the parents that are missing; `path` is below the mount.
Status make_dirs(const std::string& mount, const std::string& path);

}  // namespace souk
