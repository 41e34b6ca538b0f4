// SPDX-License-Identifier: GPL-2.0-or-later
// A process of agentd's gives up with this what it may do, before it reads anything that comes from
// elsewhere. It begins as root, since agentd is; what is left is its memory, the sockets that it
// has and what comes over them:
//
//   - a root directory that is empty and cannot be written to, in a mount namespace of its own
//   - a network, IPC and host name of its own: no address, nothing to connect to
//   - an own user (_souk-net, else nobody), no group, no capability, no new privileges
//   - no file can be written, no core dumped, at most 1 GB of memory had
//   - only the system calls that it names; any other one ends it
//
// The process ends with agentd, also when that is killed.
#pragma once

#include <span>

#include "kernel/base/result.hpp"

namespace souk {

// `parent`: agentd, as whose child this has begun. `calls`: by their numbers.
Status enter_sandbox(int parent, std::span<const int> calls);
// No other calls than these from now on, and only those that were allowed before.
Status allow_calls(std::span<const int> calls);
// With a sanitizer a process needs more calls and more memory: neither is limited then.
extern const bool sandbox_is_wide;

}  // namespace souk
