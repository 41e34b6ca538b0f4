// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/store/linkless.hpp"

#include <fcntl.h>
#include <linux/mount.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace souk {

bool is_linkless(int dir) {
    constexpr long no_links = 0x2000;  // ST_NOSYMFOLLOW, which the C library does not name
    struct statfs fs {};
    return ::fstatfs(dir, &fs) == 0 && (fs.f_flags & no_links) != 0;
}

Result<Fd> linkless(int dir) {
    constexpr unsigned as_it_is = AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC;
    Fd tree(static_cast<int>(::syscall(SYS_open_tree, dir, "", as_it_is)));
    if (!tree) return fail_errno("a mount of its own for a directory", errno);
    mount_attr attributes{};
    attributes.attr_set =
        MOUNT_ATTR_NOSYMFOLLOW | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
    if (::syscall(SYS_mount_setattr, tree.get(), "", AT_EMPTY_PATH, &attributes,
                  sizeof attributes) != 0)
        return fail_errno("a mount that follows no links", errno);
    return tree;
}

}  // namespace souk
