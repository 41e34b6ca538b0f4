// SPDX-License-Identifier: GPL-2.0-or-later
// A daemon of root's gives up rights and system calls that only its children would need, when it
// has begun and starts no process itself any more. Programs that it started before keep them.
#pragma once

#include <cstdint>

#include "kernel/base/result.hpp"

namespace souk {

// Changes from root to another user, without groups, for good. The process keeps the capabilities
// that give_up_starting() leaves. It must have one thread.
Status become_user(uint32_t uid, uint32_t gid);

// Gives up what loads programs into the kernel (CAP_BPF, CAP_PERFMON, or what stands in for them),
// by which its memory can be read, and what attaches those that count packets (CAP_NET_ADMIN), by
// which the machine's network is ruled. Programs that are loaded go on, and their maps are its to
// use. For a process of one thread; for good. An error says why the first two stay: a kernel before
// 5.19 asks for them at each use of a map.
Status give_up_measuring();

// From now on this process
//   - starts no program and no process (threads it may), enters no namespace, and takes no
//     descriptor from another process
//   - mounts nothing, traces nobody, changes to no other user or root directory, loads no module
//   - opens no file of others for writing, and gives none away
//   - lacks the capabilities for that, and can have none of them back
// All its threads; for good. What is refused fails with EPERM. With a sanitizer, which starts a
// process to look for leaks, the capabilities alone.
Status give_up_starting();

}  // namespace souk
