// SPDX-License-Identifier: GPL-2.0-or-later
// The edge of the simulator: traces and job files in, results out. Reading streams through one
// buffer of 256 KiB, so a trace costs the memory of its jobs and not that of its text. Every error
// begins with the file's name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/result.hpp"
#include "market/sim/swf.hpp"

namespace souk::sim {

// An SWF trace, as text or gzip (told apart by the first two bytes, not by the name). Fails when
// the file cannot be read, when its gzip stream is truncated or damaged, and as SwfParser does.
Result<SwfTrace> read_swf(const std::string& path);

// A whole text file of at most 256 MiB.
Result<std::string> read_text(const std::string& path);

// Files that appear together or not at all: each is written without a name (where the file system
// cannot do that: under a temporary one beside its place), and commit() gives them their names. So
// whoever is killed while writing leaves nothing; killed inside commit(), some whole files and
// perhaps one whole file NAME.tmp.PID.N. Without commit() nothing is left. A symbolic link stays
// one; what is no regular file (a device, a pipe) is written to by commit().
class OutputFiles {
  public:
    OutputFiles() = default;
    OutputFiles(const OutputFiles&) = delete;
    OutputFiles& operator=(const OutputFiles&) = delete;
    ~OutputFiles();
    // add() of this file fails: it is read, or it was meant for something else.
    void spare(const std::string& path);
    // Fails where the file cannot be written, was added already, or is spared.
    Status add(const std::string& path, std::string_view content);
    Status commit();

  private:
    struct Pending {
        std::string place;
        std::string temporary;  // its name until commit(); empty: it has none
        int fd = -1;            // the file that has no name yet
        std::string content;    // of what is no regular file
        bool regular = true;
    };
    Status give_name(Pending& file);
    std::vector<Pending> pending_;
    std::vector<std::string> spared_;
};

}  // namespace souk::sim
