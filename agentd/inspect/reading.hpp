// SPDX-License-Identifier: GPL-2.0-or-later
// What souk-inspect does, once it has no rights any more. The first of its processes starts one for
// each image, and reads nothing but agentd's word to do so; that one answers questions about the
// files of its image, and ends with the socket that it was given. A process that an image has taken
// over has that image, and can say wrong things about it.
#pragma once

#include "agentd/inspect/answers.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk::inspect {

// Until agentd is gone. `confine`: in the new process, before it reads.
void start_readers(Fd control, Status (*confine)());
// One image's; until its socket is closed.
Status read_image(const Fd& socket);
// What a file says.
Answer read_file_of_image(FileKind kind, int file);

}  // namespace souk::inspect
