// SPDX-License-Identifier: GPL-2.0-or-later
// Session: what is in files.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "agentd/files/session.hpp"
#include "agentd/files/talk.hpp"

namespace souk::files {
namespace {

// Tells whether the file is a program, or something that programs load, which seldom changes. It
// must have one name only, by which it is watched.
bool is_program(const Node& node, const struct stat& st) {
    if (st.st_nlink != 1) return false;
    const std::string& name = node.name;
    constexpr const char* ends[] = {".so", ".pyc", ".py", ".jar"};
    return node.quiet || (st.st_mode & 0111) != 0 || name.find(".so.") != std::string::npos ||
           std::ranges::any_of(ends, [&](const char* end) { return name.ends_with(end); });
}

}  // namespace

Session::Done Session::run_data(const fuse_in_header& head, Words& words, Bytes& out) {
    switch (head.opcode) {
        case FUSE_OPEN:
        case FUSE_OPENDIR: return open(head, words, out);
        case FUSE_READ: return read(words, out);
        case FUSE_WRITE: return write(words, out);
        case FUSE_RELEASE:
        case FUSE_RELEASEDIR: return release(words);
        case FUSE_FLUSH: return flush(head, words);
        case FUSE_FSYNC:
        case FUSE_FSYNCDIR: return sync(words);
        case FUSE_SYNCFS: {
            const int fd = nodes_.fd_of(FUSE_ROOT_ID);
            return fd >= 0 ? 0 : fd;  // each write before it is at home by now
        }
        case FUSE_FALLOCATE: return allocate(words);
        case FUSE_LSEEK: return seek(words, out);
        default: return copy(words, out);
    }
}

Session::Handle* Session::handle(uint64_t number, bool directory) {
    const auto it = handles_.find(number);
    if (it == handles_.end() || it->second.directory != directory) return nullptr;
    it->second.unused_moves = 0;
    return &it->second;
}

// A close asks nothing (FOPEN_NOFLUSH): what was written is at home, and what a mapping holds goes
// there when it ends. A client that has to hear of closes changes that (hear_close).
Session::Done Session::put_handle(Handle handle, uint32_t flags, Bytes& out) {
    if (handles_.size() >= limits_.open_max) return -ENFILE;
    fuse_open_out opened{};
    opened.fh = next_handle_++;
    opened.open_flags = flags | (handle.directory ? 0U : FOPEN_NOFLUSH);
    put(out, opened);
    handles_.emplace(opened.fh, std::move(handle));
    return 0;
}

int Session::open_node(uint64_t id, int flags, Fd& fd) {
    const int held = nodes_.fd_of(id);
    if (held < 0) return held;
    const uint32_t kind = nodes_.find(id)->kind;
    if (kind == S_IFLNK) return -ELOOP;
    if (kind != S_IFREG && kind != S_IFDIR) return -EACCES;
    char path[16];
    std::snprintf(path, sizeof path, "%d", held);
    fd = Fd(::openat(proc_.get(), path, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    return fd ? 0 : -errno;
}

// Pages that the kernel has of an earlier open are good if nothing but reads came since.
Session::Done Session::open(const fuse_in_header& head, Words& words, Bytes& out) {
    fuse_open_in in{};
    if (!words.take(in)) return -EINVAL;
    const bool directory = head.opcode == FUSE_OPENDIR;
    const int wish = static_cast<int>(in.flags);
    const int flags = directory ? O_RDONLY | O_DIRECTORY : wish & (O_ACCMODE | O_APPEND | O_TRUNC);
    // The user's own files: each open sees what was closed before it.
    const bool noted = is_watched_file(head.nodeid);
    const bool watched = noted && lease_of(head.nodeid) == Lease::program;
    Handle opened;
    if (const int error = open_node(head.nodeid, flags, opened.fd); error != 0) return error;
    opened.node = head.nodeid;
    opened.directory = directory;
    if (watched) leased_ = Lease::program;
    if (directory) return put_handle(std::move(opened), watched ? FOPEN_CACHE_DIR : 0, out);
    struct stat st {};
    if (::fstat(opened.fd.get(), &st) != 0) return -errno;
    if (!S_ISREG(st.st_mode)) return -EISDIR;
    if (st.st_nlink != 1) leased_ = Lease::none;
    Node& node = *nodes_.find(head.nodeid);
    const Stamp now = stamp_of(st);
    const bool keeps = node.known && node.stamp == now && (wish & O_TRUNC) == 0;
    // The kernel makes one empty itself.
    file_has_changed_ = node.told != now && (wish & O_TRUNC) == 0;
    node.stamp = now;
    node.known = true;
    if (noted && (wish & O_ACCMODE) == O_RDONLY && is_program(node, st))
        contents_.opened(head.nodeid, opened.fd.get(), st);
    return put_handle(std::move(opened), keeps ? FOPEN_KEEP_CACHE : 0, out);
}

void Session::expect_contents_of(Session& other) {
    for (const auto& [number, h] : other.handles_) {
        const Node* const node = h.directory ? nullptr : other.nodes_.find(h.node);
        struct stat st {};
        if (node && (::fcntl(h.fd.get(), F_GETFL) & O_ACCMODE) == O_RDONLY &&
            ::fstat(h.fd.get(), &st) == 0 && is_program(*node, st))
            contents_.expect(h.fd.get(), st, &other == this ? h.node : 0);
    }
}

Session::Done Session::read(Words& words, Bytes& out) {
    fuse_read_in in{};
    if (!words.take(in) || in.size > data_bytes_max) return -EINVAL;
    const Handle* h = handle(in.fh, false);
    if (!h) return -ESTALE;
    const size_t at = out.size();
    out.resize(at + in.size);
    size_t got = 0;
    while (got < in.size) {
        const ssize_t n = ::pread(h->fd.get(), out.data() + at + got, in.size - got,
                                  static_cast<off_t>(in.offset + got));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -errno;
        if (n == 0) break;
        got += static_cast<size_t>(n);
    }
    out.resize(at + got);
    return 0;
}

namespace {

// Turns O_APPEND off while the kernel writes out a mapping, because such a write goes to its offset
// also in a file that is open for appending.
class NotAppending {
  public:
    NotAppending(int fd, bool of_mapping) : fd_(fd), flags_(of_mapping ? ::fcntl(fd, F_GETFL) : 0) {
        if (appends()) (void)::fcntl(fd_, F_SETFL, flags_ & ~O_APPEND);
    }
    NotAppending(const NotAppending&) = delete;
    NotAppending& operator=(const NotAppending&) = delete;
    ~NotAppending() {
        if (appends()) (void)::fcntl(fd_, F_SETFL, flags_);
    }

  private:
    bool appends() const { return flags_ > 0 && (flags_ & O_APPEND) != 0; }
    const int fd_, flags_;
};

}  // namespace

Session::Done Session::write(Words& words, Bytes& out) {
    fuse_write_in in{};
    ByteView data;
    if (!words.take(in) || in.size > data_bytes_max || !words.bytes(data, in.size)) return -EINVAL;
    Handle* const h = handle(in.fh, false);
    if (!h) return -ESTALE;
    const NotAppending here(h->fd.get(), (in.write_flags & FUSE_WRITE_CACHE) != 0);
    fuse_write_out done{};
    while (done.size < in.size) {
        const ssize_t n = ::pwrite(h->fd.get(), data.data() + done.size, in.size - done.size,
                                   static_cast<off_t>(in.offset + done.size));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (done.size == 0 || (in.padding & write_whole) != 0)) return -errno;
        if (n <= 0) break;
        done.size += static_cast<uint32_t>(n);
    }
    (void)write_out_.wrote(h->fd.get(), in.offset, done.size, h->run);
    put(out, done);
    return 0;
}

Session::Done Session::release(Words& words) {
    fuse_release_in in{};
    if (!words.take(in)) return -EINVAL;
    if (locks_) locks_->released(number_, in.fh);
    return handles_.erase(in.fh) == 1 ? 0 : -ESTALE;
}

// Answered when it is on the home's disk.
Session::Done Session::sync(Words& words) {
    fuse_fsync_in in{};
    if (!words.take(in)) return -EINVAL;
    const auto it = handles_.find(in.fh);
    if (it == handles_.end()) return -ESTALE;
    const int fd = it->second.fd.get();
    const bool data_only = (in.fsync_flags & FUSE_FSYNC_FDATASYNC) != 0;
    return (data_only ? ::fdatasync(fd) : ::fsync(fd)) == 0 ? 0 : -errno;
}

Session::Done Session::allocate(Words& words) {
    fuse_fallocate_in in{};
    if (!words.take(in)) return -EINVAL;
    const Handle* h = handle(in.fh, false);
    if (!h) return -ESTALE;
    const int done = ::fallocate(h->fd.get(), static_cast<int>(in.mode),
                                 static_cast<off_t>(in.offset), static_cast<off_t>(in.length));
    return done == 0 ? 0 : -errno;
}

Session::Done Session::seek(Words& words, Bytes& out) {
    fuse_lseek_in in{};
    if (!words.take(in)) return -EINVAL;
    const Handle* h = handle(in.fh, false);
    if (!h) return -ESTALE;
    if (in.whence != SEEK_DATA && in.whence != SEEK_HOLE) return -EINVAL;
    const off_t at =
        ::lseek(h->fd.get(), static_cast<off_t>(in.offset), static_cast<int>(in.whence));
    if (at < 0) return -errno;
    put(out, fuse_lseek_out{static_cast<uint64_t>(at)});
    return 0;
}

Session::Done Session::copy(Words& words, Bytes& out) {
    fuse_copy_file_range_in in{};
    if (!words.take(in) || in.flags != 0) return -EINVAL;
    const Handle* from = handle(in.fh_in, false);
    const Handle* to = handle(in.fh_out, false);
    if (!from || !to) return -ESTALE;
    auto from_at = static_cast<off_t>(in.off_in), to_at = static_cast<off_t>(in.off_out);
    // We copy in parts, because others wait for this thread.
    const size_t part = std::min<uint64_t>(in.len, 16 << 20);
    const ssize_t n = ::copy_file_range(from->fd.get(), &from_at, to->fd.get(), &to_at, part, 0);
    if (n < 0) return -errno;
    put(out, fuse_write_out{static_cast<uint32_t>(n), 0});
    return 0;
}

}  // namespace souk::files
