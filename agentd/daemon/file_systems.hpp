// SPDX-License-Identifier: GPL-2.0-or-later
// The file systems of this node as a home names them to the nodes of its jobs
// (JobSpec::file_systems): a digest of what kernel/sys/store/same_files.hpp says, and the
// directories that it is of.
#pragma once

#include <cstdint>
#include <string>

#include "kernel/base/result.hpp"

namespace souk {

// Names the file systems of these directories, which blanks part; none: all that is mounted.
Result<std::string> file_systems(const std::string& directories);
// Whether this node has the file systems that a home has named. False if that cannot be found out.
bool has_file_systems(const std::string& named);

// Whether more is free on the disk of that directory than `reserve_bytes`, which are for the daemon
// itself (below 0: a twentieth of the disk, at most 1 GB).
Status disk_has_room(int directory, int64_t reserve_bytes);
// How many bytes one user's images may still take there, who has `taken` bytes of them, of
// `share_mb` (below 0: half of the disk). The error says that it is none.
Result<uint64_t> image_share_left(int directory, int64_t share_mb, uint64_t taken);

}  // namespace souk
