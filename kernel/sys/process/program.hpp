// SPDX-License-Identifier: GPL-2.0-or-later
// Starts another program of this installation as a process of its own, and looks at executables of
// others.
#pragma once

#include <csignal>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernel/sys/host/fd.hpp"

namespace souk {

// Starts a program with those words behind its name, these descriptors as 3, 4, ..., no other
// descriptor that is close-on-exec, no signal blocked, and PATH alone in its environment. session:
// it leads a new session.
Result<Pidfd> start_program(const std::string& name, const std::vector<std::string>& words,
                            const std::vector<int>& fds, bool session);

// Kills a program for a process that may not do so itself.
using EndProgram = std::function<void(const Pidfd&)>;
inline void kill_program(const Pidfd& program) { (void)program.signal(SIGKILL); }

// Returns the path of an executable that somebody has named, without links, which is the one to
// run. Errors: one line why it is not to be run: it is none, or others than root and `own`, the
// user who runs it, may change it, a link to it or a directory on the way.
Result<std::string> check_program(const std::string& path, uint32_t own);

}  // namespace souk
