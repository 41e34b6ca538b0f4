// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/files/session.hpp"

#include <fcntl.h>
#include <sys/fsuid.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "agentd/files/fsetid.hpp"
#include "agentd/files/talk.hpp"

namespace souk::files {
namespace {

// Acts for a caller of another user in a job of root's. What the caller makes is then its user's,
// and a program that it writes to loses its set-user-ID bit. The kernel where the caller runs has
// checked what it may do (the tree is mounted with default_permissions), so root's other rights
// stay.
class AsCaller {
  public:
    AsCaller(const fuse_in_header& head, bool is_root) : acts_(is_root && counts(head)) {
        if (!acts_) return;
        (void)::setfsgid(head.gid);
        (void)::setfsuid(head.uid);
        use_fsetid(false);
    }
    AsCaller(const AsCaller&) = delete;
    AsCaller& operator=(const AsCaller&) = delete;
    ~AsCaller() {
        if (!acts_) return;
        (void)::setfsuid(0);
        (void)::setfsgid(0);
        use_fsetid(true);
    }

  private:
    static bool counts(const fuse_in_header& head) {
        if (head.uid == 0 && head.gid == 0) return false;
        switch (head.opcode) {
            case FUSE_SYMLINK:
            case FUSE_MKNOD:
            case FUSE_MKDIR:
            case FUSE_CREATE:
            case FUSE_TMPFILE:
            case FUSE_OPEN:
            case FUSE_WRITE:
            case FUSE_FALLOCATE:
            case FUSE_SETXATTR:
            case FUSE_COPY_FILE_RANGE: return true;
            default: return false;
        }
    }
    const bool acts_;
};

}  // namespace

bool Words::text(const char*& text, size_t bytes_max) {
    const void* zero = left_.empty() ? nullptr : std::memchr(left_.data(), 0, left_.size());
    if (!zero) return bad();
    text = reinterpret_cast<const char*>(left_.data());
    const auto length = static_cast<size_t>(static_cast<const uint8_t*>(zero) - left_.data());
    if (length == 0 || length > bytes_max) return bad();
    left_ = left_.subspan(length + 1);
    return true;
}

bool Words::name(const char*& text) {
    const void* const zero =
        left_.size() > name_bytes_max ? std::memchr(left_.data(), 0, left_.size()) : nullptr;
    long_ = long_ || (zero && static_cast<const uint8_t*>(zero) - left_.data() > name_bytes_max);
    if (!this->text(text, name_bytes_max)) return false;
    if (std::strchr(text, '/') || std::strcmp(text, ".") == 0 || std::strcmp(text, "..") == 0)
        return bad();
    return true;
}

bool Words::bytes(ByteView& data, size_t size) {
    if (left_.size() < size) return bad();
    data = left_.first(size);
    left_ = left_.subspan(size);
    return true;
}

Session::Session(const Export& tree, const SessionLimits& limits, Watches* watches, uint64_t number,
                 Locks* locks)
    : limits_(limits),
      tree_(tree),
      nodes_(tree, limits.fds_max, limits.nodes_max),
      watches_(watches, number),
      number_(number),
      locks_(locks),
      proc_(::open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC)),
      shown_uid_(tree.uid),
      shown_gid_(tree.gid) {}

void Session::handle(ByteView request, Bytes& out, uint64_t seq) {
    fuse_in_header head{};
    Words words(request);
    fuse_out_header answer{};
    const size_t at = out.size();
    int error = -EINVAL;
    if (words.take(head) && head.len == request.size()) {
        put(out, answer);
        leased_ = Lease::none;
        file_has_changed_ = waits_for_lock_ = false;
        seq_ = seq;
        error = run(head, words, out);
        if (error == -EINVAL && words.is_long()) error = -ENAMETOOLONG;
        if (head.opcode == FUSE_FORGET || head.opcode == FUSE_BATCH_FORGET ||
            head.opcode == FUSE_INTERRUPT || head.opcode == FUSE_DESTROY || waits_for_lock_)
            return out.resize(at);
    } else {
        put(out, answer);
    }
    if (error != 0) out.resize(at + sizeof answer);
    answer.len = static_cast<uint32_t>(out.size() - at);
    answer.error = error;
    answer.unique = head.unique;
    std::memcpy(out.data() + at, &answer, sizeof answer);
}

Session::Done Session::run(const fuse_in_header& head, Words& words, Bytes& out) {
    const AsCaller caller(head, tree_.uid == 0 && shown_uid_ == 0);
    switch (head.opcode) {
        case FUSE_FORGET: {
            fuse_forget_in in{};
            if (!words.take(in)) return -EINVAL;
            nodes_.forget(head.nodeid, in.nlookup);
            return 0;
        }
        case FUSE_BATCH_FORGET: {
            fuse_batch_forget_in in{};
            if (!words.take(in)) return -EINVAL;
            fuse_forget_one one{};
            for (uint32_t i = 0; i < in.count && words.take(one); ++i)
                nodes_.forget(one.nodeid, one.nlookup);
            return 0;
        }
        case FUSE_LOOKUP:
        case FUSE_READLINK:
        case FUSE_SYMLINK:
        case FUSE_MKNOD:
        case FUSE_MKDIR:
        case FUSE_UNLINK:
        case FUSE_RMDIR:
        case FUSE_RENAME:
        case FUSE_RENAME2:
        case FUSE_LINK:
        case FUSE_CREATE:
        case FUSE_TMPFILE:
        case FUSE_READDIR:
        case FUSE_READDIRPLUS: return run_names(head, words, out);
        case FUSE_OPEN:
        case FUSE_OPENDIR:
        case FUSE_READ:
        case FUSE_WRITE:
        case FUSE_FLUSH:
        case FUSE_RELEASE:
        case FUSE_RELEASEDIR:
        case FUSE_FSYNC:
        case FUSE_FSYNCDIR:
        case FUSE_SYNCFS:
        case FUSE_FALLOCATE:
        case FUSE_LSEEK:
        case FUSE_COPY_FILE_RANGE: return run_data(head, words, out);
        case FUSE_GETLK: return get_lock(head, words, out);
        case FUSE_SETLK:
        case FUSE_SETLKW: return set_lock(head, words);
        case FUSE_INTERRUPT: {
            fuse_interrupt_in in{};
            if (locks_ && words.take(in)) locks_->interrupt(number_, in.unique);
            return 0;
        }
        case FUSE_IOCTL: return -ENOTTY;
        default: return run_attributes(head, words, out);
    }
}

}  // namespace souk::files
