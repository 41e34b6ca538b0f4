// SPDX-License-Identifier: GPL-2.0-or-later
// Session: locks of files, and the closes that let them go.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "agentd/files/session.hpp"
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

Session::Done Session::get_lock(const fuse_in_header& head, Words& words, Bytes& out) {
    fuse_lk_in in{};
    if (!words.take(in)) return -EINVAL;
    const Handle* const h = handle(in.fh, false);
    const Node* const node = nodes_.find(head.nodeid);
    if (!h || !node || h->node != head.nodeid) return -ESTALE;
    if (!locks_) return -ENOSYS;
    fuse_lk_out said{in.lk};
    const int error = locks_->get(holder_of(number_, *node, in.owner, false, in.lk),
                                  {h->fd.get(), in.fh}, said.lk);
    if (error == 0) put(out, said);
    return error;
}

Session::Done Session::set_lock(const fuse_in_header& head, Words& words) {
    fuse_lk_in in{};
    if (!words.take(in)) return -EINVAL;
    const Handle* const h = handle(in.fh, false);
    const Node* const node = nodes_.find(head.nodeid);
    if (!h || !node || h->node != head.nodeid) return -ESTALE;
    if (!locks_) return -ENOSYS;
    const bool flock = (in.lk_flags & FUSE_LK_FLOCK) != 0;
    const uint64_t seq = head.opcode == FUSE_SETLKW ? seq_ : 0;
    const int done = locks_->set(holder_of(number_, *node, in.owner, flock, in.lk),
                                 {h->fd.get(), in.fh}, in.lk, seq, head.unique);
    waits_for_lock_ = done == Locks::comes_later;
    file_has_changed_ =
        done == 0 && in.lk.type != F_UNLCK && !locks_->has_index(node->dev, node->ino);
    return waits_for_lock_ ? 0 : done;
}

// A process has closed one of its descriptors: its POSIX locks of the file are gone.
Session::Done Session::flush(const fuse_in_header& head, Words& words) {
    fuse_flush_in in{};
    if (!words.take(in)) return -EINVAL;
    const Handle* const h = handle(in.fh, false);
    if (!h) return -ESTALE;
    const Node* const node = nodes_.find(head.nodeid);
    if (locks_ && node) locks_->closed(holder_of(number_, *node, in.lock_owner, false, {}));
    // A file server of the home's own (NFS) reports errors of writes at a close, so we close a
    // copy.
    const int copy = ::fcntl(h->fd.get(), F_DUPFD_CLOEXEC, 3);
    return copy >= 0 && ::close(copy) == 0 ? 0 : -errno;
}

}  // namespace souk::files
