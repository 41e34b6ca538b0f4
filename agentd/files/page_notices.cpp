// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/files/page_notices.hpp"

#include <fcntl.h>
#include <linux/fuse.h>
#include <unistd.h>

#include <cerrno>

namespace souk::files {

// The thread lives as long as the process.
Status PageNotices::begin() {
    TRY_ASSIGN(asked_, make_pipe());
    TRY_ASSIGN(done_, make_pipe());
    if (::fcntl(done_.read_end.get(), F_SETFL, O_NONBLOCK) != 0) return fail_errno("fcntl", errno);
    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    ::pthread_attr_setstacksize(&attributes, 64 << 10);
    ::pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    const int failed = ::pthread_create(&thread_, &attributes, run, this);
    ::pthread_attr_destroy(&attributes);
    if (failed == 0) return {};
    asked_ = {};
    done_ = {};
    return fail_errno("pthread_create", failed);
}

bool PageNotices::forget(uint64_t node) {
    if (!asked_.write_end && !begin()) return false;
    return ::write(asked_.write_end.get(), &node, sizeof node) == sizeof node;
}

uint64_t PageNotices::take_done() {
    char some[64];
    const ssize_t n = ::read(done_.read_end.get(), some, sizeof some);
    return n > 0 ? static_cast<uint64_t>(n) : 0;
}

void* PageNotices::run(void* self) {
    const auto& all = *static_cast<const PageNotices*>(self);
    uint64_t node = 0;
    while (::read(all.asked_.read_end.get(), &node, sizeof node) == sizeof node) {
        struct {
            fuse_out_header head{sizeof(fuse_out_header) + sizeof(fuse_notify_inval_inode_out),
                                 FUSE_NOTIFY_INVAL_INODE, 0};
            fuse_notify_inval_inode_out of{0, 0, 0};  // from its beginning to its end
        } notice;
        notice.of.ino = node;
        (void)!::write(all.fuse_, &notice, sizeof notice);  // the kernel may not know it any more
        if (::write(all.done_.write_end.get(), "", 1) != 1) break;
    }
    return nullptr;
}

}  // namespace souk::files
