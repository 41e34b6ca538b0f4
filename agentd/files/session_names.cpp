// SPDX-License-Identifier: GPL-2.0-or-later
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "agentd/files/session_parts.hpp"
#include "agentd/files/talk.hpp"
#include "agentd/files/umask.hpp"

namespace souk::files {
namespace {

constexpr size_t entries_bytes = 32 * 1024;

// The kernel gives entries in this form (getdents64).
struct Entry64 {
    uint64_t ino;
    int64_t next;
    uint16_t bytes;
    uint8_t type;
};
constexpr size_t entry_name_at = 19;

int result(long value) { return value < 0 ? -errno : 0; }

}  // namespace

Done SessionNames::run(const fuse_in_header& head, Words& words, Bytes& out) {
    const char* name = nullptr;
    switch (head.opcode) {
        case FUSE_LOOKUP: return words.name(name) ? lookup(head.nodeid, name, out) : -EINVAL;
        case FUSE_READLINK: return read_link(head.nodeid, out);
        case FUSE_SYMLINK:
        case FUSE_MKNOD:
        case FUSE_MKDIR: return make(head, words, out);
        case FUSE_UNLINK: return remove_name(head.nodeid, words, 0);
        case FUSE_RMDIR: return remove_name(head.nodeid, words, AT_REMOVEDIR);
        case FUSE_RENAME:
        case FUSE_RENAME2: return rename(head, words);
        case FUSE_LINK: return link_to(head.nodeid, words, out);
        case FUSE_CREATE: return create(head.nodeid, words, out);
        case FUSE_TMPFILE: return make_nameless(head.nodeid, words, out);
        default: return read_directory(words, head.opcode == FUSE_READDIRPLUS, out);
    }
}

namespace {
// A file of several names may be changed by one that is not watched.
bool is_leasable(const fuse_attr& attr) {
    const uint32_t kind = attr.mode & S_IFMT;
    return kind == S_IFLNK || kind == S_IFDIR || (kind == S_IFREG && attr.nlink == 1);
}
}  // namespace

Done SessionNames::put_entry(uint64_t parent, const char* name, Bytes& out) {
    fuse_entry_out entry{};
    struct statx st {};
    const int error = nodes_.lookup(parent, name, entry.nodeid, st);
    if (error != 0) return error;
    entry.entry_valid = entry.attr_valid = attributes_.trusted_s();
    attributes_.put_into(entry.nodeid, st, entry.attr);
    put(out, entry);
    return 0;
}

// A name that does not exist is an answer, too, and is good for as long. We watch the directory
// before we look, so that we are told of every later change.
Done SessionNames::lookup(uint64_t parent, const char* name, Bytes& out) {
    const bool watched = leases_.is_watched(parent);
    const size_t at = out.size();
    int error = put_entry(parent, name, out);
    if (watched && error == 0) {
        fuse_entry_out entry{};
        std::memcpy(&entry, out.data() + at, sizeof entry);
        bool leasable = is_leasable(entry.attr) && leases_.is_watched_file(entry.nodeid);
        if (leasable && S_ISDIR(entry.attr.mode)) {  // it is watched only now
            struct statx st {};
            const int fd = nodes_.fd_of(entry.nodeid);
            leasable = fd >= 0 && Nodes::stat(fd, st) == 0;
            if (leasable) attributes_.put_into(entry.nodeid, st, entry.attr);
            std::memcpy(out.data() + at, &entry, sizeof entry);
        }
        if (leasable) leases_.grant(leases_.kind_of(entry.nodeid));
    }
    if (error != -ENOENT) return error;
    if (watched) leases_.grant(leases_.kind_of(parent));
    fuse_entry_out none{};
    none.entry_valid = attributes_.trusted_s();
    put(out, none);
    return 0;
}

Done SessionNames::make(const fuse_in_header& head, Words& words, Bytes& out) {
    const int parent = nodes_.fd_of(head.nodeid);
    if (parent < 0) return parent;
    if (nodes_.find(head.nodeid)->sealed) return -EROFS;
    const char* name = nullptr;
    int error = 0;
    if (head.opcode == FUSE_SYMLINK) {
        const char* target = nullptr;
        if (!words.name(name) || !words.text(target, PATH_MAX - 1)) return -EINVAL;
        error = result(::symlinkat(target, parent, name));
    } else if (head.opcode == FUSE_MKDIR) {
        fuse_mkdir_in in{};
        if (!words.take(in) || !words.name(name)) return -EINVAL;
        const Umask as_there(in.umask);
        error = result(::mkdirat(parent, name, mode_asked(in.mode, in.umask)));
    } else {
        fuse_mknod_in in{};
        if (!words.take(in) || !words.name(name)) return -EINVAL;
        const uint32_t kind = in.mode & S_IFMT;
        // A device would be one of the home's.
        if (kind != S_IFREG && kind != S_IFIFO && kind != S_IFSOCK) return -EPERM;
        const Umask as_there(in.umask);
        error = result(::mknodat(parent, name, kind | mode_asked(in.mode, in.umask), 0));
    }
    return error != 0 ? error : put_entry(head.nodeid, name, out);
}

Done SessionNames::link_to(uint64_t parent, Words& words, Bytes& out) {
    fuse_link_in in{};
    const char* name = nullptr;
    if (!words.take(in) || !words.name(name)) return -EINVAL;
    const int file = nodes_.fd_of(in.oldnodeid);
    if (file < 0) return file;
    const Fd kept(::fcntl(file, F_DUPFD_CLOEXEC, 3));
    const int below = nodes_.fd_of(parent);
    if (below < 0) return below;
    if (!kept) return -errno;
    if (nodes_.find(parent)->sealed) return -EROFS;
    char path[16];
    std::snprintf(path, sizeof path, "%d", kept.get());
    if (::linkat(proc_, path, below, name, AT_SYMLINK_FOLLOW) != 0) return -errno;
    return put_entry(parent, name, out);
}

Done SessionNames::remove_name(uint64_t parent, Words& words, int flags) {
    const char* name = nullptr;
    if (!words.name(name)) return -EINVAL;
    const int below = nodes_.fd_of(parent);
    if (below < 0) return below;
    if (nodes_.find(parent)->sealed) return -EROFS;
    const Fd kept(::fcntl(below, F_DUPFD_CLOEXEC, 3));
    if (!kept) return -errno;
    nodes_.keep_file(parent, kept.get(), name);
    return result(::unlinkat(kept.get(), name, flags));
}

Done SessionNames::rename(const fuse_in_header& head, Words& words) {
    uint64_t to = 0;
    uint32_t flags = 0;
    if (head.opcode == FUSE_RENAME2) {
        fuse_rename2_in in{};
        if (!words.take(in)) return -EINVAL;
        to = in.newdir;
        flags = in.flags;
    } else {
        fuse_rename_in in{};
        if (!words.take(in)) return -EINVAL;
        to = in.newdir;
    }
    const char *name = nullptr, *new_name = nullptr;
    if (!words.name(name) || !words.name(new_name)) return -EINVAL;
    const int from_fd = nodes_.fd_of(head.nodeid);
    if (from_fd < 0) return from_fd;
    const Fd from(::fcntl(from_fd, F_DUPFD_CLOEXEC, 3));
    const int to_fd = nodes_.fd_of(to);
    if (to_fd < 0) return to_fd;
    const Fd below(::fcntl(to_fd, F_DUPFD_CLOEXEC, 3));
    if (!from || !below) return -errno;
    if (nodes_.find(head.nodeid)->sealed || nodes_.find(to)->sealed) return -EROFS;
    if ((flags & RENAME_EXCHANGE) == 0) nodes_.keep_file(to, below.get(), new_name);
    if (::renameat2(from.get(), name, below.get(), new_name, flags) != 0) return -errno;
    nodes_.renamed(head.nodeid, name, to, new_name);
    if ((flags & RENAME_EXCHANGE) != 0) nodes_.renamed(to, new_name, head.nodeid, name);
    return 0;
}

Done SessionNames::create(uint64_t parent, Words& words, Bytes& out) {
    fuse_create_in in{};
    const char* name = nullptr;
    if (!words.take(in) || !words.name(name)) return -EINVAL;
    const int below = nodes_.fd_of(parent);
    if (below < 0) return below;
    if (nodes_.find(parent)->sealed) return -EROFS;
    const int wish = static_cast<int>(in.flags);
    const int flags = (wish & (O_ACCMODE | O_APPEND | O_EXCL | O_TRUNC)) | O_CREAT | O_NOFOLLOW |
                      O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    Handles::Handle made;
    const Umask as_there(in.umask);
    made.fd = Fd(::openat(below, name, flags, mode_asked(in.mode, in.umask)));
    if (!made.fd) return -errno;
    struct stat st {};
    if (::fstat(made.fd.get(), &st) != 0 || !S_ISREG(st.st_mode)) return -EEXIST;
    const size_t at = out.size();
    if (const int error = put_entry(parent, name, out); error != 0) return error;
    fuse_entry_out entry{};
    std::memcpy(&entry, out.data() + at, sizeof entry);
    made.node = entry.nodeid;
    return handles_.put(std::move(made), 0, out);
}

Done SessionNames::make_nameless(uint64_t parent, Words& words, Bytes& out) {
    fuse_create_in in{};
    if (!words.take(in)) return -EINVAL;
    const int below = nodes_.fd_of(parent);
    if (below < 0) return below;
    if (nodes_.find(parent)->sealed) return -EROFS;
    char path[16];
    std::snprintf(path, sizeof path, "%d", below);
    const int wish = static_cast<int>(in.flags);
    Handles::Handle made;
    const Umask as_there(in.umask);
    made.fd = Fd(::openat(proc_, path, (wish & (O_ACCMODE | O_EXCL)) | O_TMPFILE | O_CLOEXEC,
                          mode_asked(in.mode, in.umask)));
    if (!made.fd) return -errno;
    std::snprintf(path, sizeof path, "%d", made.fd.get());
    Fd node(::openat(proc_, path, O_PATH | O_CLOEXEC));
    if (!node) return -errno;
    fuse_entry_out entry{};
    struct statx st {};
    if (const int error = nodes_.adopt(std::move(node), entry.nodeid, st); error != 0) return error;
    entry.attr_valid = attributes_.trusted_s();
    attributes_.put_into(entry.nodeid, st, entry.attr);
    put(out, entry);
    made.node = entry.nodeid;
    return handles_.put(std::move(made), 0, out);
}

Done SessionNames::read_link(uint64_t id, Bytes& out) {
    const int fd = nodes_.fd_of(id);
    if (fd < 0) return fd;
    char target[PATH_MAX];
    const ssize_t n = ::readlinkat(fd, "", target, sizeof target);
    if (n < 0) return -errno;
    out.insert(out.end(), target, target + n);
    return 0;
}

// Reads more entries, if there are none at hand.
Done SessionNames::fill(Handles::Handle& h) {
    if (h.at < h.entries.size()) return 0;
    h.entries.resize(entries_bytes);
    h.at = 0;
    const long n = ::syscall(SYS_getdents64, h.fd.get(), h.entries.data(), entries_bytes);
    const int error = result(n);
    h.entries.resize(n < 0 ? 0 : static_cast<size_t>(n));
    return error;
}

// Returns false if the entry does not fit.
bool SessionNames::put_dirent(Handles::Handle& h, bool plus, size_t end, Bytes& out) {
    Entry64 entry{};
    const uint8_t* raw = h.entries.data() + h.at;
    std::memcpy(&entry, raw, entry_name_at);
    const char* name = reinterpret_cast<const char*>(raw + entry_name_at);
    const size_t length = std::strlen(name);
    const size_t bytes =
        (plus ? FUSE_NAME_OFFSET_DIRENTPLUS : FUSE_NAME_OFFSET) + FUSE_DIRENT_ALIGN(length);
    if (out.size() + bytes > end) return false;
    const bool is_dot = std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0;
    const Node& directory = *nodes_.find(h.node);
    h.at += entry.bytes;
    h.next = entry.next;
    if (directory.sealed && !is_dot) return true;
    fuse_direntplus one{};
    if (plus && !is_dot) {
        struct statx st {};
        // one that has just gone, or may not be looked at, is named without more
        if (nodes_.lookup(h.node, name, one.entry_out.nodeid, st) == 0) {
            one.entry_out.entry_valid = one.entry_out.attr_valid = attributes_.trusted_s();
            attributes_.put_into(one.entry_out.nodeid, st, one.entry_out.attr);
        }
    }
    one.dirent.ino = nodes_.shown_ino(nodes_.find(h.node)->dev, entry.ino);
    one.dirent.off = static_cast<uint64_t>(entry.next);
    one.dirent.namelen = static_cast<uint32_t>(length);
    one.dirent.type = entry.type;
    const size_t at = out.size();
    out.resize(at + bytes);
    if (plus)
        std::memcpy(out.data() + at, &one, FUSE_NAME_OFFSET_DIRENTPLUS);
    else
        std::memcpy(out.data() + at, &one.dirent, FUSE_NAME_OFFSET);
    std::memcpy(out.data() + at + bytes - FUSE_DIRENT_ALIGN(length), name, length);
    return true;
}

Done SessionNames::read_directory(Words& words, bool plus, Bytes& out) {
    fuse_read_in in{};
    if (!words.take(in)) return -EINVAL;
    Handles::Handle* h = handles_.find(in.fh, true);
    if (!h) return -ESTALE;
    if (!nodes_.find(h->node)) return -ESTALE;
    if (static_cast<int64_t>(in.offset) != h->next) {
        if (::lseek(h->fd.get(), static_cast<off_t>(in.offset), SEEK_SET) < 0) return -errno;
        h->next = static_cast<int64_t>(in.offset);
        h->entries.clear();
        h->at = 0;
    }
    const size_t end = out.size() + std::min(in.size, data_bytes_max);
    for (;;) {
        if (const int error = fill(*h); error != 0) return error;
        if (h->entries.empty() || !put_dirent(*h, plus, end, out)) return 0;
    }
}

}  // namespace souk::files
