// SPDX-License-Identifier: GPL-2.0-or-later
// The edge of the simulator: traces and job files in, results out. Reading streams through one buffer of 256 KiB, so a
// trace costs the memory of its jobs and not that of its text. Every error begins with the file's name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/result.hpp"
#include "market/sim/swf.hpp"

namespace souk::sim {

// An SWF trace, as text or gzip (told apart by the first two bytes, not by the name). Fails when the file cannot be
// read, when its gzip stream is truncated or damaged, and as SwfParser does.
Result<SwfTrace> read_swf(const std::string& path);

// A whole text file of at most 256 MiB.
Result<std::string> read_text(const std::string& path);

// Files that appear together or not at all: each is written beside its place under a temporary name; commit() renames
// them. Without commit() the destructor removes what was written. A symbolic link stays one; what is no regular file (a
// device, a pipe) is written to by commit().
class OutputFiles {
  public:
    OutputFiles() = default;
    OutputFiles(const OutputFiles&) = delete;
    OutputFiles& operator=(const OutputFiles&) = delete;
    ~OutputFiles();
    Status add(const std::string& path, std::string_view content);
    Status commit();

  private:
    struct Pending {
        std::string temporary, path;
        std::string content;  // of a path that is no regular file; then there is no temporary one
    };
    std::vector<Pending> pending_;
};

}  // namespace souk::sim
