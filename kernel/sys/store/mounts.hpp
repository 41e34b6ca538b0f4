// SPDX-License-Identifier: GPL-2.0-or-later
// Lists mounts, from a mountinfo of the kernel (proc(5)). libmount reads it, because it knows the
// format's escapes, optional fields and oddities.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "kernel/base/result.hpp"

namespace souk {

struct Mount {
    std::string point;    // where; blanks and the like as they are
    std::string type;     // "ext4", "cgroup2", "fuse.sshfs"
    std::string options;  // of the file system itself, not of this mount
    dev_t device = 0;
    std::string source;  // "/dev/sda1", "server:/home"
    std::string root;    // the directory of the file system that is mounted
};

// Parses the text of a mountinfo, in its order. A line that names no mount is left out. Pure.
std::vector<Mount> parse_mounts(const std::string& mountinfo);
// Returns the mounts that this process sees.
Result<std::vector<Mount>> own_mounts();

}  // namespace souk
