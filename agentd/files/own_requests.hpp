// SPDX-License-Identifier: GPL-2.0-or-later
// What a client asks of the server by itself, and its kernel does not know of: the requests, as
// bytes of the FUSE protocol. Pure.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernel/sys/host/bytes.hpp"

namespace souk::files {

// Closes a file (FUSE_RELEASE) or a directory (FUSE_RELEASEDIR) that is open there.
Bytes release_request(uint32_t opcode, uint64_t node, uint64_t fh);
// Asks for attributes, and so for their lease.
Bytes attributes_request(uint64_t node);
// Looks a name up, and opens a file for that.
Bytes lookup_request(uint64_t directory, std::string_view name);
Bytes open_request(uint64_t node, uint32_t flags);
// Asks of its file system.
Bytes statfs_request(uint64_t node);
// Of a call that has ended already: gives back what its answer gives, a reference to a name or an
// open file. Empty: it gives nothing.
Bytes undoing_request(uint32_t opcode, uint64_t node, ByteView answer);

}  // namespace souk::files
