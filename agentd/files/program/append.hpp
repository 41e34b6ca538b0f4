// SPDX-License-Identifier: GPL-2.0-or-later
// What a job writes while nobody is attached goes into files (srun --detach -o FILE), with its
// user's rights. One packet at a time comes from agentd: where its bytes end (8 bytes), a byte for
// the stream (1 stdout, 2 stderr), and what to write. How far each stream is, is noted in a file of
// agentd's (two numbers of 8 bytes) and answered: "w" and both numbers, first of all when the files
// are open, then for each packet. What fails is answered by "e" and the reason, and that is the
// end. A lock on the note keeps a process of an agentd before from writing at the same time.
#pragma once

#include <string>
#include <vector>

#include "kernel/base/result.hpp"

namespace souk::files {

// `err` empty: the same file as `out`; `out` empty: stdout goes nowhere. Returns when the socket's
// other end is closed.
Status append_output(int socket, int note, const std::string& directory, const std::string& out,
                     const std::string& err);

}  // namespace souk::files
