// SPDX-License-Identifier: GPL-2.0-or-later
// How souk-handshake gives up what it may do, before it reads anything that comes from elsewhere.
// It begins as root, since agentd is; what is left is its memory, the socket to agentd and what
// comes over that:
//
//   - a root directory that is empty and cannot be written to, in a mount namespace of its own
//   - a network, IPC and host name of its own: no address, nothing to connect to
//   - an own user (_souk-net, else nobody), no group, no capability, no new privileges
//   - no file can be written, no core dumped, at most 1 GB of memory had
//   - only the system calls that it needs; any other one ends it
//
// It ends with agentd, also when that is killed.
#pragma once

#include "kernel/base/result.hpp"

namespace souk::handshake {

// `parent`: agentd, as whose child this has begun.
Status enter_sandbox(int parent);

}  // namespace souk::handshake
