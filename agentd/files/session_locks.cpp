// SPDX-License-Identifier: GPL-2.0-or-later
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "agentd/files/session_parts.hpp"
#include "kernel/sys/store/served_locks.h"

namespace souk::files {
namespace {

Locks::Holder holder_of(uint64_t session, const Node& node, uint64_t owner, bool flock,
                        const fuse_file_lock& range) {
    const bool index = !flock && range.start == souk_index_byte && range.end == range.start &&
                       node.name.ends_with(souk_index_ends);
    return {session, node.dev, node.ino, owner, flock, index};
}

}  // namespace

void SessionLocks::begin(uint64_t seq) {
    seq_ = seq;
    waits_ = file_has_changed_ = false;
}

Done SessionLocks::run(const fuse_in_header& head, Words& words, Bytes& out) {
    switch (head.opcode) {
        case FUSE_GETLK: return get(head, words, out);
        case FUSE_SETLK:
        case FUSE_SETLKW: return set(head, words);
        case FUSE_FLUSH: return flush(head, words);
        case FUSE_INTERRUPT: return interrupt(words);
        default: return release(words);
    }
}

// Returns 0, or an error: what it asks for is none of an open file.
int SessionLocks::read_lock(const fuse_in_header& head, Words& words, Asked& asked) {
    if (!words.take(asked.in)) return -EINVAL;
    asked.handle = handles_.find(asked.in.fh, false);
    asked.node = nodes_.find(head.nodeid);
    if (!asked.handle || !asked.node || asked.handle->node != head.nodeid) return -ESTALE;
    return locks_ ? 0 : -ENOSYS;
}

Done SessionLocks::get(const fuse_in_header& head, Words& words, Bytes& out) {
    Asked asked;
    if (const int error = read_lock(head, words, asked); error != 0) return error;
    const auto& [in, h, node] = asked;
    fuse_lk_out said{in.lk};
    const int error = locks_->get(holder_of(session_, *node, in.owner, false, in.lk),
                                  {h->fd.get(), in.fh}, said.lk);
    if (error == 0) put(out, said);
    return error;
}

Done SessionLocks::set(const fuse_in_header& head, Words& words) {
    Asked asked;
    if (const int error = read_lock(head, words, asked); error != 0) return error;
    const auto& [in, h, node] = asked;
    const bool flock = (in.lk_flags & FUSE_LK_FLOCK) != 0;
    const uint64_t seq = head.opcode == FUSE_SETLKW ? seq_ : 0;
    const Locks::Holder holder = holder_of(session_, *node, in.owner, flock, in.lk);
    if (in.padding != 0 && in.lk.type == F_UNLCK) return locks_->undo(holder, in.lk, in.padding);
    const int done = locks_->set(holder, {h->fd.get(), in.fh}, in.lk, seq, head.unique);
    waits_ = done == Locks::comes_later;
    file_has_changed_ =
        done == 0 && in.lk.type != F_UNLCK && !locks_->has_index(node->dev, node->ino);
    return waits_ ? 0 : done;
}

// A process has closed one of its descriptors: its POSIX locks of the file are gone.
Done SessionLocks::flush(const fuse_in_header& head, Words& words) {
    fuse_flush_in in{};
    if (!words.take(in)) return -EINVAL;
    const Handles::Handle* const h = handles_.find(in.fh, false);
    if (!h) return -ESTALE;
    const Node* const node = nodes_.find(head.nodeid);
    if (locks_ && node) locks_->closed(holder_of(session_, *node, in.lock_owner, false, {}));
    // A file server of the home's own (NFS) reports errors of writes at a close, so we close a
    // copy.
    const int copy = ::fcntl(h->fd.get(), F_DUPFD_CLOEXEC, 3);
    return copy >= 0 && ::close(copy) == 0 ? 0 : -errno;
}

Done SessionLocks::release(Words& words) {
    fuse_release_in in{};
    if (!words.take(in)) return -EINVAL;
    if (locks_) locks_->released(session_, in.fh);
    return handles_.close(in.fh) ? 0 : -ESTALE;
}

Done SessionLocks::interrupt(Words& words) {
    fuse_interrupt_in in{};
    if (locks_ && words.take(in)) locks_->interrupt(session_, in.unique);
    return 0;
}

}  // namespace souk::files
