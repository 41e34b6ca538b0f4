// SPDX-License-Identifier: GPL-2.0-or-later
// Writes a job's output into files while nobody is attached (srun --detach -o FILE), with its
// user's rights. agentd sends one packet at a time: where its bytes end (8 bytes), a byte for the
// stream (1 stdout, 2 stderr), and the bytes to write. A file of agentd's notes how far each stream
// is (two numbers of 8 bytes). The answer is "w" and both numbers, first of all when the files are
// open, then for each packet. A failure is answered by "e" and the reason, and ends it all. A lock
// on the note keeps a process of an earlier agentd from writing at the same time.
#pragma once

#include <string>
#include <vector>

#include "kernel/base/result.hpp"

namespace souk::files {

// If `err` is empty, stderr goes into the same file as `out`; if `out` is empty, stdout goes
// nowhere. Returns when the socket's other end is closed.
Status append_output(int socket, int note, const std::string& directory, const std::string& out,
                     const std::string& err);

}  // namespace souk::files
