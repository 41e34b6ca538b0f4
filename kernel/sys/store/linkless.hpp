// SPDX-License-Identifier: GPL-2.0-or-later
// Directories in which no symbolic link is followed, for who uses, as root, the names in a
// directory of somebody else's.
#pragma once

#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {

// Tells whether the directory lies in a mount that follows no links.
bool is_linkless(int dir);
// Returns the same directory by a mount of its own that follows no links; the mount is gone with
// the descriptor. Closing that takes a millisecond or two, in the process that closes it last.
// ENOSYS: a kernel before 5.12. Needs root.
Result<Fd> linkless(int dir);

}  // namespace souk
