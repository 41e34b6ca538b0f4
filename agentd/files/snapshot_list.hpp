// SPDX-License-Identifier: GPL-2.0-or-later
// SnapshotList: what lies below a directory, each directory before what is in it, as a snapshot of
// it keeps it (snapshot.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/result.hpp"

namespace souk::files {

inline constexpr size_t snapshot_list_bytes_max = 64 << 20;

struct SnapshotEntry {
    std::string path;  // below the directory
    uint32_t mode = 0;
    uint64_t inode = 0, size = 0;
    int64_t mtime_ns = 0, ctime_ns = 0;
    uint64_t copy = 0;  // of a regular file: the name of its copy in the snapshot
    // The file was changed so shortly before that a later change may bear the same times.
    bool just_written = false;
    std::string target = {};  // of a symbolic link
};
using SnapshotList = std::vector<SnapshotEntry>;

// Lists what is below, on the same file system, without the directory of snapshots. E2BIG: too
// many.
Result<SnapshotList> list_below(int top);

std::string encode(const SnapshotList& list);
Result<SnapshotList> decode_snapshot_list(std::string_view text);

}  // namespace souk::files
