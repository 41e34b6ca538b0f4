// SPDX-License-Identifier: GPL-2.0-or-later
// souk-inspect does this once it has no rights any more. The first of its processes starts one for
// each image, and reads nothing but agentd's word to do so. The process for an image answers
// questions about the files of that image, and ends with the socket that it was given. A process
// that an image has taken over has that image alone, and can say wrong things about it.
#pragma once

#include "agentd/inspect/answers.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk::inspect {

// Works until agentd is gone. Calls `confine` in each new process, before that reads.
void start_readers(Fd control, Status (*confine)());
// Answers for one image, until its socket is closed.
Status read_image(const Fd& socket);
// Returns what a file says.
Answer read_file_of_image(FileKind kind, int file);

}  // namespace souk::inspect
