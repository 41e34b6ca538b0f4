// SPDX-License-Identifier: GPL-2.0-or-later
// Checks the descriptors that agentd brings. souk-root asks the kernel what they are, and believes
// nothing else. An error says what the descriptor is not.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "agentd/root/own_user.hpp"
#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk::root {

// kind: S_IFREG and the like. Asks no file server: one of a job's files may be served through the
// agentd that waits for this.
Status check_kind(int fd, mode_t kind, const char* what);
// Checks for a directory in which nobody but agentd and root makes or swaps a file.
Status check_own(int fd, const char* what, AgentUser owner);
// Checks for a control group of agentd's: who makes a group owns its files. magic: of the file
// system.
Status check_group(int fd, uint32_t magic, mode_t kind, AgentUser owner);
// Files of groups of v1 that a new process writes itself into. Whether it may, the kernel asks of
// who has opened the file: so they are opened anew.
Result<std::vector<Fd>> reopen_v1(std::span<const int> fds, AgentUser owner);
Status check_packets(int fd);  // a socket of packets
// Checks for an end of a job: a pipe without a name, or a terminal. CRIU opens it once more, as
// root.
Status check_end(int fd);
Status check_fuse(int fd);  // /dev/fuse
// Returns the kernel's name of what a descriptor stands for.
std::string name_of(int fd);

std::vector<int> numbers_of(const std::vector<Fd>& fds);

}  // namespace souk::root
