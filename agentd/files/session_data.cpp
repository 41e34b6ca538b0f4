// SPDX-License-Identifier: GPL-2.0-or-later
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "agentd/files/session_parts.hpp"
#include "agentd/files/talk.hpp"

namespace souk::files {
Done SessionData::run(const fuse_in_header& head, Words& words, Bytes& out) {
    switch (head.opcode) {
        case FUSE_READ: return read(words, out);
        case FUSE_WRITE: return write(words, out);
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

Done SessionData::read(Words& words, Bytes& out) {
    fuse_read_in in{};
    if (!words.take(in) || in.size > data_bytes_max) return -EINVAL;
    const Handles::Handle* h = handles_.find(in.fh, false);
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

Done SessionData::write(Words& words, Bytes& out) {
    fuse_write_in in{};
    ByteView data;
    if (!words.take(in) || in.size > data_bytes_max || !words.bytes(data, in.size)) return -EINVAL;
    Handles::Handle* const h = handles_.find(in.fh, false);
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

// Answered when it is on the home's disk.
Done SessionData::sync(Words& words) {
    fuse_fsync_in in{};
    if (!words.take(in)) return -EINVAL;
    const int fd = handles_.fd_of(in.fh);
    if (fd < 0) return -ESTALE;
    const bool data_only = (in.fsync_flags & FUSE_FSYNC_FDATASYNC) != 0;
    return (data_only ? ::fdatasync(fd) : ::fsync(fd)) == 0 ? 0 : -errno;
}

Done SessionData::allocate(Words& words) {
    fuse_fallocate_in in{};
    if (!words.take(in)) return -EINVAL;
    const Handles::Handle* h = handles_.find(in.fh, false);
    if (!h) return -ESTALE;
    const int done = ::fallocate(h->fd.get(), static_cast<int>(in.mode),
                                 static_cast<off_t>(in.offset), static_cast<off_t>(in.length));
    return done == 0 ? 0 : -errno;
}

Done SessionData::seek(Words& words, Bytes& out) {
    fuse_lseek_in in{};
    if (!words.take(in)) return -EINVAL;
    const Handles::Handle* h = handles_.find(in.fh, false);
    if (!h) return -ESTALE;
    if (in.whence != SEEK_DATA && in.whence != SEEK_HOLE) return -EINVAL;
    const off_t at =
        ::lseek(h->fd.get(), static_cast<off_t>(in.offset), static_cast<int>(in.whence));
    if (at < 0) return -errno;
    put(out, fuse_lseek_out{static_cast<uint64_t>(at)});
    return 0;
}

Done SessionData::copy(Words& words, Bytes& out) {
    fuse_copy_file_range_in in{};
    if (!words.take(in) || in.flags != 0) return -EINVAL;
    const Handles::Handle* from = handles_.find(in.fh_in, false);
    const Handles::Handle* to = handles_.find(in.fh_out, false);
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
