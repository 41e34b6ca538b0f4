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

// Tells whether only this machine changes the file system's files, so that its kernel sees each
// change.
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

// These events leave the name to the same file.
constexpr uint32_t same_name = IN_ATTRIB | IN_MODIFY | IN_CLOSE_WRITE | IN_ISDIR;

int add_watch(int instance, int file, uint32_t what) {
    char path[40];
    std::snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    return ::inotify_add_watch(instance, path, what);
}

}  // namespace

// The kernel counts the instance as the effective user's.
Fd Watches::make_instance(uid_t user) {
    const uid_t self = ::geteuid();
    if (user != self && ::seteuid(user) != 0) return Fd();
    Fd instance(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    if (user != self && ::seteuid(self) != 0) return Fd();
    return instance;
}

bool Watches::watch_name(int file) {
    return inotify_ && add_watch(inotify_.get(), file, IN_ATTRIB | IN_DELETE_SELF) >= 0;
}

bool Watches::watch(uint64_t session, uint64_t node, int directory) {
    Own& own = by_session_[session];
    if (own.by_node.contains(node)) return true;
    if (!inotify_ || !is_of_this_machine(directory)) return false;
    if (own.by_node.size() >= watches_max_) drop_oldest(session, own);
    const int number = add_watch(inotify_.get(), directory, changes);
    if (number < 0) return false;  // it may not be read, or there are too many
    auto& watchers = by_watch_[number];
    const auto before = std::ranges::find(watchers, session, &Watcher::first);
    if (before != watchers.end()) {
        // The kernel of the job has forgotten it, and asks for it again by another number.
        own.by_node.erase(before->second);
        before->second = node;
    } else {
        watchers.emplace_back(session, node);
    }
    own.by_node[node] = number;
    if (own.order.size() > 2 * watches_max_)
        std::erase_if(own.order, [&](uint64_t old) { return !own.by_node.contains(old); });
    own.order.push_back(node);
    return true;
}

void Watches::drop(uint64_t session, int number) {
    auto& watchers = by_watch_.at(number);
    std::erase_if(watchers, [&](const Watcher& w) { return w.first == session; });
    if (!watchers.empty()) return;
    by_watch_.erase(number);
    (void)::inotify_rm_watch(inotify_.get(), number);
}

void Watches::drop_oldest(uint64_t session, Own& own) {
    while (!own.order.empty()) {
        const uint64_t node = own.order.front();
        own.order.pop_front();
        const auto it = own.by_node.find(node);
        if (it == own.by_node.end()) continue;
        drop(session, it->second);
        own.by_node.erase(it);
        dropped_.emplace_back(session, node);
        return;
    }
}

void Watches::leave(uint64_t session) {
    const auto own = by_session_.find(session);
    if (own == by_session_.end()) return;
    for (const auto& [node, number] : own->second.by_node) drop(session, number);
    std::erase_if(dropped_, [&](const Watcher& w) { return w.first == session; });
    by_session_.erase(own);
}

// `over`: the kernel watches it no more.
void Watches::tell(int watch, bool over, bool stays, const std::string& name,
                   const Changed& changed) {
    const auto it = by_watch_.find(watch);
    if (it == by_watch_.end()) return;
    const auto watchers = it->second;
    if (over) by_watch_.erase(it);
    for (const auto& [session, node] : watchers) {
        if (over) by_session_[session].by_node.erase(node);
        changed({session, node, name, stays});
    }
}

bool Watches::read(const Changed& changed) {
    alignas(inotify_event) char buffer[16 * 1024];
    for (const auto& [session, node] : std::exchange(dropped_, {}))
        changed({session, node, {}, false});
    for (bool some = false;; some = true) {
        const ssize_t got = inotify_ ? ::read(inotify_.get(), buffer, sizeof buffer) : -1;
        if (got <= 0) return some;
        for (ssize_t at = 0; at < got;) {
            inotify_event event;
            std::memcpy(&event, buffer + at, sizeof event);
            const char* name = buffer + at + sizeof event;
            at += static_cast<ssize_t>(sizeof event + event.len);
            if ((event.mask & IN_Q_OVERFLOW) != 0) {
                for (const auto& [session, own] : by_session_) changed({session, 0, {}, false});
                continue;
            }
            const bool over = (event.mask & (IN_IGNORED | IN_DELETE_SELF)) != 0;
            const bool stays = (event.mask & ~same_name) == 0;
            tell(event.wd, over, stays, event.len > 0 ? name : "", changed);
        }
    }
}

}  // namespace souk::files
