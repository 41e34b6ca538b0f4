// SPDX-License-Identifier: GPL-2.0-or-later
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "agentd/files/contents.hpp"
#include "agentd/files/fsetid.hpp"
#include "agentd/files/session_parts.hpp"
#include "agentd/files/snapshot.hpp"

namespace souk::files {
namespace {

constexpr uint32_t extended_bytes_max = 64 * 1024;

// Names the file of an O_PATH descriptor in /proc, for calls that take no such descriptor.
struct ProcPath {
    char text[40];
    explicit ProcPath(int fd) { std::snprintf(text, sizeof text, "/proc/self/fd/%d", fd); }
};

timespec time_of(uint32_t valid, uint32_t set, uint32_t now, uint64_t s, uint32_t ns) {
    if ((valid & set) == 0) return {0, UTIME_OMIT};
    if ((valid & now) != 0) return {0, UTIME_NOW};
    return {static_cast<time_t>(s), static_cast<long>(ns)};
}

// Tells whether a user's programs may set this attribute. The others are not reachable through
// here.
bool is_users(const char* name) {
    return std::strncmp(name, "user.", 5) == 0 || std::strncmp(name, "system.posix_acl_", 17) == 0;
}

}  // namespace

Done SessionAttributes::run(const fuse_in_header& head, Words& words, Bytes& out) {
    switch (head.opcode) {
        case FUSE_GETATTR: return get(head.nodeid, words, out);
        case FUSE_SETATTR: return set(head.nodeid, words, out);
        case FUSE_ACCESS: return access(head.nodeid, words);
        case FUSE_STATFS: return statistics(head.nodeid, out);
        case FUSE_SETXATTR: return set_extended(head.nodeid, words);
        case FUSE_GETXATTR: return get_extended(head.nodeid, words, out);
        case FUSE_LISTXATTR: return list_extended(head.nodeid, words, out);
        case FUSE_REMOVEXATTR: return remove_extended(head.nodeid, words);
        default: return -ENOSYS;
    }
}

void SessionAttributes::put_into(uint64_t id, const struct statx& st, fuse_attr& attr) {
    if (Node* const node = nodes_.find(id)) node->told = stamp_of(st);
    attr.ino = nodes_.shown_ino(Nodes::device(st), st.stx_ino);
    attr.size = st.stx_size;
    attr.blocks = st.stx_blocks;
    attr.atime = static_cast<uint64_t>(st.stx_atime.tv_sec);
    attr.mtime = static_cast<uint64_t>(st.stx_mtime.tv_sec);
    attr.ctime = static_cast<uint64_t>(st.stx_ctime.tv_sec);
    attr.atimensec = st.stx_atime.tv_nsec;
    attr.mtimensec = st.stx_mtime.tv_nsec;
    attr.ctimensec = st.stx_ctime.tv_nsec;
    attr.mode = st.stx_mode;
    attr.nlink = st.stx_nlink;
    attr.uid = st.stx_uid == tree_.uid ? shown_uid_ : st.stx_uid;
    attr.gid = st.stx_gid == tree_.gid ? shown_gid_ : st.stx_gid;
    attr.rdev = static_cast<uint32_t>(makedev(st.stx_rdev_major, st.stx_rdev_minor));
    attr.blksize = st.stx_blksize;
}

void SessionAttributes::put_answer(uint64_t id, const struct statx& st, Bytes& out) {
    fuse_attr_out answer{};
    answer.attr_valid = trusted_s_;
    put_into(id, st, answer.attr);
    put(out, answer);
}

Done SessionAttributes::get(uint64_t id, Words& words, Bytes& out) {
    fuse_getattr_in in{};
    if (!words.take(in)) return -EINVAL;
    int fd = -1;
    if ((in.getattr_flags & FUSE_GETATTR_FH) != 0) fd = handles_.fd_of(in.fh);
    const bool watched = leases_.is_watched_file(id);
    if (fd < 0) fd = nodes_.fd_of(id);
    if (fd < 0) return fd;
    struct statx st {};
    if (const int error = Nodes::stat(fd, st); error != 0) return error;
    if (watched && (!S_ISREG(st.stx_mode) || st.stx_nlink == 1)) leases_.grant(leases_.kind_of(id));
    put_answer(id, st, out);
    return 0;
}

Done SessionAttributes::set_some(uint64_t id, const fuse_setattr_in& in) {
    const int fd = nodes_.fd_of(id);
    if (fd < 0) return fd;
    const bool is_link = nodes_.find(id)->kind == S_IFLNK;
    const ProcPath path(fd);
    if ((in.valid & FATTR_MODE) != 0) {
        if (is_link) return -EOPNOTSUPP;
        if (::chmod(path.text, in.mode & 07777) != 0) return -errno;
    }
    if ((in.valid & (FATTR_UID | FATTR_GID)) != 0) {
        const uint32_t uid = in.uid == shown_uid_ ? tree_.uid : in.uid;
        const uint32_t gid = in.gid == shown_gid_ ? tree_.gid : in.gid;
        if (::fchownat(fd, "", (in.valid & FATTR_UID) != 0 ? uid : ~0U,
                       (in.valid & FATTR_GID) != 0 ? gid : ~0U,
                       AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) != 0)
            return -errno;
    }
    if ((in.valid & FATTR_SIZE) != 0) {
        const Handles::Handle* h =
            (in.valid & FATTR_FH) != 0 ? handles_.find(in.fh, false) : nullptr;
        Fd own;
        if (!h)
            if (const int error = open_node(nodes_, proc_, id, O_WRONLY, own); error != 0)
                return error;
        // The process that cuts the file is not its owner, or may not keep its set-ID bits. Without
        // CAP_FSETID the kernel clears them.
        const bool kills = (in.valid & FATTR_KILL_SUIDGID) != 0;
        if (kills) use_fsetid(false);
        const int cut = ::ftruncate(h ? h->fd.get() : own.get(), static_cast<off_t>(in.size));
        const int error = errno;
        if (kills) use_fsetid(true);
        if (cut != 0) return -error;
    }
    if ((in.valid & (FATTR_ATIME | FATTR_MTIME)) != 0) {
        const timespec times[2] = {
            time_of(in.valid, FATTR_ATIME, FATTR_ATIME_NOW, in.atime, in.atimensec),
            time_of(in.valid, FATTR_MTIME, FATTR_MTIME_NOW, in.mtime, in.mtimensec)};
        const int done = is_link ? ::utimensat(fd, "", times, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW)
                                 : ::utimensat(AT_FDCWD, path.text, times, 0);
        if (done != 0) return -errno;
    }
    return 0;
}

Done SessionAttributes::set(uint64_t id, Words& words, Bytes& out) {
    fuse_setattr_in in{};
    if (!words.take(in)) return -EINVAL;
    if (const int error = set_some(id, in); error != 0) return error;
    const int fd = nodes_.fd_of(id);
    if (fd < 0) return fd;
    struct statx st {};
    if (const int error = Nodes::stat(fd, st); error != 0) return error;
    put_answer(id, st, out);
    return 0;
}

Done SessionAttributes::access(uint64_t id, Words& words) {
    fuse_access_in in{};
    if (!words.take(in)) return -EINVAL;
    const int fd = nodes_.fd_of(id);
    if (fd < 0) return fd;
    return ::faccessat(AT_FDCWD, ProcPath(fd).text, static_cast<int>(in.mask & 7), AT_EACCESS) == 0
               ? 0
               : -errno;
}

Done SessionAttributes::statistics(uint64_t id, Bytes& out) {
    const int fd = nodes_.fd_of(id);
    if (fd < 0) return fd;
    struct statfs fs {};
    if (::fstatfs(fd, &fs) != 0) return -errno;
    fuse_statfs_out answer{};
    answer.st.blocks = fs.f_blocks;
    answer.st.bfree = fs.f_bfree;
    answer.st.bavail = fs.f_bavail;
    answer.st.files = fs.f_files;
    answer.st.ffree = fs.f_ffree;
    answer.st.bsize = static_cast<uint32_t>(fs.f_bsize);
    answer.st.namelen = static_cast<uint32_t>(fs.f_namelen);
    answer.st.frsize = static_cast<uint32_t>(fs.f_frsize);
    put(out, answer);
    return 0;
}

Done SessionAttributes::set_extended(uint64_t id, Words& words) {
    struct {
        uint32_t size, flags;  // of a fuse_setxattr_in, in the form without more
    } in{};
    const char* name = nullptr;
    ByteView value;
    if (!words.take(in) || !words.text(name, 255) || in.size > extended_bytes_max ||
        !words.bytes(value, in.size))
        return -EINVAL;
    if (!is_users(name)) return -EOPNOTSUPP;
    const int fd = nodes_.fd_of(id);
    if (fd < 0) return fd;
    if (nodes_.find(id)->kind == S_IFLNK) return -EOPNOTSUPP;
    if (std::strcmp(name, snapshot_attribute) == 0) {
        const Status taken = take_snapshot(fd, std::string(value.begin(), value.end()));
        return taken ? 0 : -(taken.error().code > 0 ? taken.error().code : EIO);
    }
    const int done =
        ::setxattr(ProcPath(fd).text, name, value.data(), value.size(), static_cast<int>(in.flags));
    return done == 0 ? 0 : -errno;
}

Done SessionAttributes::get_extended(uint64_t id, Words& words, Bytes& out) {
    fuse_getxattr_in in{};
    const char* name = nullptr;
    if (!words.take(in) || !words.text(name, 255)) return -EINVAL;
    if (!is_users(name)) return -ENODATA;
    const int fd = nodes_.fd_of(id);
    if (fd < 0) return fd;
    if (nodes_.find(id)->kind == S_IFLNK) return -ENODATA;
    Bytes value(std::min(in.size, extended_bytes_max));
    const ssize_t n = ::getxattr(ProcPath(fd).text, name, value.data(), value.size());
    if (n < 0) return -errno;
    if (in.size == 0)
        put(out, fuse_getxattr_out{static_cast<uint32_t>(n), 0});
    else
        out.insert(out.end(), value.begin(), value.begin() + n);
    return 0;
}

Done SessionAttributes::list_extended(uint64_t id, Words& words, Bytes& out) {
    fuse_getxattr_in in{};
    if (!words.take(in)) return -EINVAL;
    const int fd = nodes_.fd_of(id);
    if (fd < 0) return fd;
    if (nodes_.find(id)->kind == S_IFLNK) {
        if (in.size == 0) put(out, fuse_getxattr_out{0, 0});
        return 0;
    }
    std::string all(extended_bytes_max, 0), shown;
    const ssize_t n = ::listxattr(ProcPath(fd).text, all.data(), all.size());
    if (n < 0) return -errno;
    all.resize(static_cast<size_t>(n));
    for (size_t at = 0; at < all.size();) {
        const char* name = all.c_str() + at;
        const size_t bytes = std::strlen(name) + 1;
        if (is_users(name)) shown.append(name, bytes);
        at += bytes;
    }
    if (in.size == 0)
        put(out, fuse_getxattr_out{static_cast<uint32_t>(shown.size()), 0});
    else if (shown.size() > in.size)
        return -ERANGE;
    else
        out.insert(out.end(), shown.begin(), shown.end());
    return 0;
}

Done SessionAttributes::remove_extended(uint64_t id, Words& words) {
    const char* name = nullptr;
    if (!words.text(name, 255)) return -EINVAL;
    if (!is_users(name)) return -EOPNOTSUPP;
    const int fd = nodes_.fd_of(id);
    if (fd < 0) return fd;
    if (nodes_.find(id)->kind == S_IFLNK) return -EOPNOTSUPP;
    return ::removexattr(ProcPath(fd).text, name) == 0 ? 0 : -errno;
}

}  // namespace souk::files
