// SPDX-License-Identifier: GPL-2.0-or-later
// A snapshot of a directory with all that lies below it (srun --files-snapshot, docs/files.md): a
// list of names and attributes, and of each regular file a copy by reference (FICLONE), which takes
// no room until one of both is written to. It lies in the directory itself, below
// `.souk-snapshots`, and is made and put back with the rights of the directory's user. No link is
// followed, and nothing on another file system is looked at.
//
// A file that is put back keeps its inode if that still has a name there: it is written to in
// place, or gets its name back. Extended attributes and owners stay as they are. Sockets and
// devices are left alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernel/base/result.hpp"

namespace souk::files {

inline constexpr char snapshots_name[] = ".souk-snapshots";
// This attribute is set on a directory of a served tree. Its value is the name of a snapshot, which
// the server then makes.
inline constexpr char snapshot_attribute[] = "user.souk.snapshot";
inline constexpr size_t snapshot_entries_max = 100'000;

// Gives an empty file the bytes of another.
using CloneFile = Status (*)(int from, int to);
// Makes the copy share the blocks of the file. EOPNOTSUPP, EXDEV: this file system cannot.
Status clone_by_reference(int from, int to);

// Tells whether the name is that of a job, a dot, and a number.
bool is_snapshot_name(const std::string& name);

// `directory` may be O_PATH. Afterwards the snapshot of that name is there whole, or there is none.
Status take_snapshot(int directory, const std::string& name, CloneFile clone = clone_by_reference);
// Puts all files back as they were then. Returns the names below the directory that had to be
// changed.
Result<std::vector<std::string>> put_back(int directory, const std::string& name,
                                          CloneFile clone = clone_by_reference);
// Drops the snapshots of that job whose number is lower.
Status drop_snapshots(int directory, const std::string& job, uint64_t below);

// Lists regular files below the directory that were written to since that moment (Unix time in ns).
Result<std::vector<std::string>> written_since(int directory, int64_t since_ns);

}  // namespace souk::files
