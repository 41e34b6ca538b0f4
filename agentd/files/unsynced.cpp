// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/files/unsynced.hpp"

#include <fcntl.h>

#include "agentd/files/fuse_bytes.hpp"

namespace souk::files {

void Unsynced::changed(uint64_t node, uint64_t seq) {
    if (!sure_) return;
    changed_[node] = seq;
    if (changed_.size() <= files_max) return;
    sure_ = false;
    changed_.clear();
}

// When the kernel asks for the file again, it has another number, so we cannot be sure of it any
// more.
void Unsynced::forgotten(uint64_t node) {
    if (!changed_.contains(node)) return;
    sure_ = false;
    changed_.clear();
}

void Unsynced::asked(ByteView request, uint64_t seq) {
    fuse_in_header head{};
    if (!sure_ || !take(request, head)) return;
    switch (head.opcode) {
        case FUSE_WRITE:
        case FUSE_SETATTR:
        case FUSE_FALLOCATE:
        case FUSE_SETXATTR:
        case FUSE_REMOVEXATTR: return changed(head.nodeid, seq);
        case FUSE_OPEN: {
            fuse_open_in in{};
            if (take(request, in) && (in.flags & O_TRUNC) != 0) changed(head.nodeid, seq);
            return;
        }
        case FUSE_COPY_FILE_RANGE: {
            fuse_copy_file_range_in in{};
            if (take(request, in)) changed(in.nodeid_out, seq);
            return;
        }
        case FUSE_FORGET: return forgotten(head.nodeid);
        case FUSE_BATCH_FORGET: {
            fuse_batch_forget_in in{};
            fuse_forget_one one{};
            if (!take(request, in)) return;
            for (uint32_t i = 0; i < in.count && take(request, one); ++i) forgotten(one.nodeid);
            return;
        }
        default: return;
    }
}

void Unsynced::answered(ByteView request, ByteView answer, uint64_t seq) {
    fuse_in_header head{};
    fuse_out_header said{};
    if (!sure_ || !take(request, head) || !take(answer, said) || said.error != 0) return;
    switch (head.opcode) {
        case FUSE_CREATE:
        case FUSE_TMPFILE:
        case FUSE_MKNOD:
        case FUSE_LINK: {
            fuse_entry_out entry{};
            if (take(answer, entry)) changed(entry.nodeid, seq);
            return;
        }
        case FUSE_FSYNC: {
            const auto it = changed_.find(head.nodeid);
            if (it != changed_.end() && it->second < seq) changed_.erase(it);
            return;
        }
        default: return;
    }
}

bool Unsynced::is_synced(ByteView request) const {
    fuse_in_header head{};
    return sure_ && take(request, head) && head.opcode == FUSE_FSYNC && head.pid == 0 &&
           !changed_.contains(head.nodeid);
}

}  // namespace souk::files
