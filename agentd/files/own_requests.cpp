// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/files/own_requests.hpp"

#include <linux/fuse.h>

#include <algorithm>
#include <cstring>

namespace souk::files {
namespace {

template <class Body>
Bytes request_of(uint32_t opcode, uint64_t node, const Body& body) {
    fuse_in_header head{};
    head.opcode = opcode;
    head.nodeid = node;
    head.len = sizeof head + sizeof body;
    Bytes bytes(head.len);
    std::memcpy(bytes.data(), &head, sizeof head);
    std::memcpy(bytes.data() + sizeof head, &body, sizeof body);
    return bytes;
}

}  // namespace

Bytes release_request(uint32_t opcode, uint64_t node, uint64_t fh) {
    fuse_release_in in{};
    in.fh = fh;
    return request_of(opcode, node, in);
}

Bytes attributes_request(uint64_t node) {
    return request_of(FUSE_GETATTR, node, fuse_getattr_in{});
}

Bytes interrupt_request(uint64_t unique) {
    return request_of(FUSE_INTERRUPT, 0, fuse_interrupt_in{unique});
}

Bytes set_lock_request(uint64_t node, const fuse_lk_in& lock) {
    return request_of(FUSE_SETLK, node, lock);
}

Bytes lookup_request(uint64_t directory, std::string_view name) {
    fuse_in_header head{};
    head.opcode = FUSE_LOOKUP;
    head.nodeid = directory;
    head.len = static_cast<uint32_t>(sizeof head + name.size() + 1);
    Bytes bytes(head.len);  // the last byte ends the name
    std::memcpy(bytes.data(), &head, sizeof head);
    std::memcpy(bytes.data() + sizeof head, name.data(), name.size());
    return bytes;
}

Bytes open_request(uint64_t node, uint32_t flags) {
    fuse_open_in in{};
    in.flags = flags;
    return request_of(FUSE_OPEN, node, in);
}

Bytes statfs_request(uint64_t node) {
    fuse_in_header head{};
    head.opcode = FUSE_STATFS;
    head.nodeid = node;
    head.len = sizeof head;
    Bytes bytes(sizeof head);
    std::memcpy(bytes.data(), &head, sizeof head);
    return bytes;
}

Bytes undoing_request(uint32_t opcode, uint64_t node, ByteView answer) {
    const ByteView body = answer.subspan(std::min(answer.size(), sizeof(fuse_out_header)));
    const bool names = opcode == FUSE_LOOKUP || opcode == FUSE_CREATE || opcode == FUSE_MKDIR ||
                       opcode == FUSE_MKNOD || opcode == FUSE_SYMLINK || opcode == FUSE_LINK;
    if (names && body.size() >= sizeof(fuse_entry_out)) {
        uint64_t named = 0;
        std::memcpy(&named, body.data(), sizeof named);
        return named == 0 ? Bytes{} : request_of(FUSE_FORGET, named, fuse_forget_in{1});
    }
    if ((opcode == FUSE_OPEN || opcode == FUSE_OPENDIR) && body.size() >= sizeof(fuse_open_out)) {
        uint64_t fh = 0;
        std::memcpy(&fh, body.data(), sizeof fh);
        return release_request(opcode == FUSE_OPEN ? FUSE_RELEASE : FUSE_RELEASEDIR, node, fh);
    }
    return {};
}

}  // namespace souk::files
