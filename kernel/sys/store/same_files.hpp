// SPDX-License-Identifier: GPL-2.0-or-later
// Tells whether two nodes have the same file systems at the same places, so that a job finds its
// home's files on a node by their names. Each node writes its own down, and the texts are compared.
// No file server is asked: what is mounted says enough.
//
//   NFS             the same server, the file system's number there (fsid), and the path that was
//                   mounted of it
//   any other       the same kernel (boot_id) and device: two nodes of one machine
//
// File systems that the kernel makes up (/proc, /sys, /dev, /run and what is below) do not count,
// because they are each node's own. Nor do file systems of an agentd's own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/result.hpp"
#include "kernel/sys/store/mounts.hpp"

namespace souk {

// Writes a line for each mount. `boot` is that of this kernel; `volumes` is the text of
// /proc/fs/nfsfs/volumes, or empty. `directories`: lists only these, each with what is mounted
// below it; none: all. Pure.
std::string file_systems_of(const std::vector<Mount>& mounts, std::string_view boot,
                            std::string_view volumes, const std::vector<std::string>& directories);
// Returns the lines for the mounts of this process.
Result<std::string> own_file_systems(const std::vector<std::string>& directories);

// Parses absolute paths, parted by blanks, as a configuration has them. The error names the wrong
// one.
Result<std::vector<std::string>> directories_of(std::string_view text);
// Tells whether `path` is one of these or lies below it. Pure.
bool lies_below(std::string_view path, const std::vector<std::string>& directories);

}  // namespace souk
