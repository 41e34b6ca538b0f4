// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/files/watches.hpp"

#include <linux/magic.h>
#include <sys/inotify.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace souk::files {
namespace {

// Only this machine changes them, and its kernel sees each change.
bool is_of_this_machine(int fd) {
    struct statfs fs {};
    if (::fstatfs(fd, &fs) != 0) return false;
    constexpr uint32_t types[] = {
        EXT4_SUPER_MAGIC,     BTRFS_SUPER_MAGIC,     XFS_SUPER_MAGIC,
        TMPFS_MAGIC,          F2FS_SUPER_MAGIC,      SQUASHFS_MAGIC,
        EROFS_SUPER_MAGIC_V1, OVERLAYFS_SUPER_MAGIC, 0x2fc12fc1 /* zfs */};
    return std::ranges::find(types, static_cast<uint32_t>(fs.f_type)) != std::end(types);
}

constexpr uint32_t changes = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB |
                             IN_MODIFY | IN_CLOSE_WRITE | IN_DELETE_SELF | IN_ONLYDIR;

}  // namespace

Watches::Watches() : inotify_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {}

bool Watches::watch(uint64_t node, int directory) {
    if (by_node_.contains(node)) return true;
    if (!inotify_ || by_node_.size() >= watches_max || !is_of_this_machine(directory)) return false;
    char path[40];
    std::snprintf(path, sizeof path, "/proc/self/fd/%d", directory);
    const int number = ::inotify_add_watch(inotify_.get(), path, changes);
    if (number < 0) return false;  // it may not be read, or there are too many
    // A directory that the kernel of the job has forgotten, and asks for again by another number.
    if (const auto before = by_watch_.find(number); before != by_watch_.end())
        by_node_.erase(before->second);
    by_node_[node] = number;
    by_watch_[number] = node;
    return true;
}

void Watches::read(const std::function<void(uint64_t, const std::string&)>& changed) {
    alignas(inotify_event) char buffer[16 * 1024];
    for (;;) {
        const ssize_t got = inotify_ ? ::read(inotify_.get(), buffer, sizeof buffer) : -1;
        if (got <= 0) return;
        for (ssize_t at = 0; at < got;) {
            inotify_event event;
            std::memcpy(&event, buffer + at, sizeof event);
            const char* name = buffer + at + sizeof event;
            at += static_cast<ssize_t>(sizeof event + event.len);
            if ((event.mask & IN_Q_OVERFLOW) != 0) {
                changed(0, {});
                continue;
            }
            const auto watched = by_watch_.find(event.wd);
            if (watched == by_watch_.end()) continue;
            const uint64_t node = watched->second;
            if ((event.mask & (IN_IGNORED | IN_DELETE_SELF)) != 0) {
                by_node_.erase(node);
                by_watch_.erase(watched);
            }
            changed(node, event.len > 0 ? name : "");
        }
    }
}

}  // namespace souk::files
