// SPDX-License-Identifier: GPL-2.0-or-later
// Directories of people's files that a node of `souk up --private-files` has for itself, so that
// nodes of one host share nothing but programs and libraries, as machines do.
#pragma once

#include <string>
#include <vector>

#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {

// A mount namespace in which /home, /root, /srv, /mnt, /media, /tmp and /var/tmp are directories
// below `own`, empty at first. What lies in `kept` (the market's own, and programs) is there all
// the same. It is there as long as the descriptor, or a process in it.
Result<Fd> make_private_files(const std::string& own, const std::vector<std::string>& kept);

}  // namespace souk
