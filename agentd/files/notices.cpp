// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/files/notices.hpp"

#include <linux/fuse.h>
#include <unistd.h>

#include <cerrno>

namespace souk::files {

bool Notices::is_read(uint64_t node) {
    for (uint32_t n = 0; n < slots; ++n) {
        const Slot& slot = slots_.at(n);
        if (slot.state != Slot::taken || slot.dropped != Slot::no) continue;
        const fuse_in_header head = slots_.head(n);
        if (head.opcode == FUSE_READ && head.nodeid == node) return true;
    }
    return false;
}

bool Notices::tell(uint64_t node) const {
    struct {
        fuse_out_header head{sizeof(fuse_out_header) + sizeof(fuse_notify_inval_inode_out),
                             FUSE_NOTIFY_INVAL_INODE, 0};
        fuse_notify_inval_inode_out of{0, -1, 0};
    } notice;
    notice.of.ino = node;
    return ::write(fuse_, &notice, sizeof notice) >= 0 || errno != ENODEV;
}

// A read that the kernel has asked for is seen when it is taken, so what is there is taken first.
Result<bool> Notices::tell() {
    if (waiting_.empty()) return true;
    TRY(take_());
    for (auto it = waiting_.begin(); it != waiting_.end();) {
        if (is_read(*it)) {
            ++it;
            continue;
        }
        if (!tell(*it)) return false;
        it = waiting_.erase(it);
    }
    return true;
}

}  // namespace souk::files
