// SPDX-License-Identifier: GPL-2.0-or-later
// A client makes these requests of the server by itself, and its kernel does not know of them. They
// are bytes of the FUSE protocol. Pure.
#pragma once

#include <linux/fuse.h>

#include <cstdint>
#include <string_view>

#include "kernel/sys/host/bytes.hpp"

namespace souk::files {

// Closes a file (FUSE_RELEASE) or a directory (FUSE_RELEASEDIR) that is open there.
Bytes release_request(uint32_t opcode, uint64_t node, uint64_t fh);
// Asks for attributes, and so for their lease.
Bytes attributes_request(uint64_t node);
// These look a name up, and open a file that was looked up so.
Bytes lookup_request(uint64_t directory, std::string_view name);
Bytes open_request(uint64_t node, uint32_t flags);
// Asks for the figures of the node's file system.
Bytes statfs_request(uint64_t node);
// Says that a signal has interrupted the request of that number.
Bytes interrupt_request(uint64_t unique);
// Sets a lock, without waiting.
Bytes set_lock_request(uint64_t node, const fuse_lk_in& lock);
// Makes the request that gives back what an answer has given, a reference to a name or an open
// file, for a call that has ended already. Empty: the answer gave nothing.
Bytes undoing_request(uint32_t opcode, uint64_t node, ByteView answer);

}  // namespace souk::files
