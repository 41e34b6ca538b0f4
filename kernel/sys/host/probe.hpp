// SPDX-License-Identifier: GPL-2.0-or-later
// Finds out what this kernel can, and what that means for Souk. The result is a table of needs,
// each tried for real where trying is cheap, with the command that mends it. The doctor prints the
// table. Daemons refuse to start with its words (require).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernel/base/result.hpp"

namespace souk {

struct Need {
    std::string name;      // "io_uring"
    std::string use;       // what it is for: "the daemons' event loop"
    bool required = true;  // false: something works less well without it
    bool met = false;
    std::string found;  // what was seen, one line
    std::string mend;   // the command, or what to do; empty when met
};

// Examines the kernel, its cgroups and this process's rights. Takes a few milliseconds; leaves
// nothing behind and changes nothing.
std::vector<Need> examine_kernel();
// Examines the one need that the market's daemon has.
Need examine_io_uring();
// Moving memory past an image needs these.
Need examine_userfaultfd();
Need examine_pipe_size();
// Examines what sending memory ahead of a move needs: a mark on a page that was written to,
// cleared, and set again by a write.
Need examine_soft_dirty();
inline constexpr const char* pipe_size_path = "/proc/sys/fs/pipe-max-size";
// CRIU keeps the pages of a lazy dump in pipes of that size
inline constexpr int64_t pipe_bytes_needed = 4 << 20;

// An error of one line if a required need is not met: "this machine lacks io_uring (...): sysctl
// ...; ...".
Status require(const std::vector<Need>& needs);

// needs_text is for people: a line for each need, and how to mend one that is not met. needs_json
// is for programs: an array of objects.
std::string needs_text(const std::vector<Need>& needs);
std::string needs_json(const std::vector<Need>& needs);

// Is capability number `capability` (linux/capability.h) effective in this process?
bool have_capability(int capability);

}  // namespace souk
