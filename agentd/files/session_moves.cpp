// SPDX-License-Identifier: GPL-2.0-or-later
// Session: what a job that is about to come here has open where it is, and locks of files, which
// stay its own while it moves.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "agentd/files/own_requests.hpp"
#include "agentd/files/session.hpp"
#include "kernel/sys/store/served_locks.h"

namespace souk::files {
namespace {

constexpr size_t opens_max = 1024;
constexpr unsigned move_depth_max = 64;
// An open file that nobody has used for so many moves is not opened ahead once more: if the job
// still has it, its client asks. Otherwise files that a job had open for a moment would be opened
// with each move.
constexpr unsigned unused_moves_max = 3;

// Returns the nodes from the top down; empty if the way cannot be told.
std::vector<uint64_t> way_to(uint64_t id, Nodes& nodes) {
    std::vector<uint64_t> way;
    for (; id != FUSE_ROOT_ID; id = nodes.find(id)->parent) {
        if (way.size() >= move_depth_max || !nodes.find(id) || nodes.find(id)->name.empty())
            return {};
        way.push_back(id);
    }
    std::ranges::reverse(way);
    return way;
}

}  // namespace

// Opens ahead what a moving job has open. A file that the job may write to gets no lease on its
// attributes: its length is known only when the job has stopped, so the client has to ask.
class Session::Moves {
  public:
    Moves(Session& to, Session& from, const Told& told) : to_(to), from_(from), told_(told) {
        for (const auto& [number, h] : from_.handles_)
            if (!h.directory && flags_of(h) != O_RDONLY) written_.insert(h.node);
    }

    void open_all() {
        size_t opened = 0;
        for (const auto& [number, h] : from_.handles_) {
            const Node* const there = h.directory ? nullptr : from_.nodes_.find(h.node);
            if (!there || there->quiet) continue;  // many, kept open for whoever opens them next
            if (h.unused_moves >= unused_moves_max) continue;
            const uint64_t node = find(h.node);
            if (node == 0) continue;
            if (++opened > opens_max || !ask(open_request(node, flags_of(h)), true)) return;
            to_.opened_ahead(answer_, h.unused_moves + 1);
        }
    }

  private:
    static uint32_t flags_of(const Handle& h) {
        return static_cast<uint32_t>(::fcntl(h.fd.get(), F_GETFL)) & (O_ACCMODE | O_APPEND);
    }
    // Returns the node's number here; 0: it has none.
    uint64_t find(uint64_t id) {
        uint64_t here = FUSE_ROOT_ID;
        for (const uint64_t step : way_to(id, from_.nodes_)) {
            const auto [it, is_new] = here_.try_emplace(step, 0);
            if (is_new) it->second = look_up(here, step);
            here = it->second;
            if (here == 0) return 0;
        }
        return here == FUSE_ROOT_ID ? 0 : here;
    }
    uint64_t look_up(uint64_t directory, uint64_t id) {
        const Node& there = *from_.nodes_.find(id);
        if (!ask(lookup_request(directory, there.name), !written_.contains(id))) return 0;
        fuse_entry_out entry{};
        if (answer_.size() != sizeof(fuse_out_header) + sizeof entry) return 0;
        std::memcpy(&entry, answer_.data() + sizeof(fuse_out_header), sizeof entry);
        const Node* const here = to_.nodes_.find(entry.nodeid);
        return here && here->dev == there.dev && here->ino == there.ino ? entry.nodeid : 0;
    }
    bool ask(const Bytes& request, bool leased) {
        answer_.clear();
        to_.handle(request, answer_);
        return told_(request, answer_, leased ? to_.leased() : Lease::none);
    }

    Session &to_, &from_;
    const Told& told_;
    std::set<uint64_t> written_;
    std::map<uint64_t, uint64_t> here_;  // by the number there
    Bytes answer_;
};

void Session::opened_ahead(ByteView answer, unsigned unused_moves) {
    fuse_open_out opened{};
    if (answer.size() != sizeof(fuse_out_header) + sizeof opened) return;
    std::memcpy(&opened, answer.data() + sizeof(fuse_out_header), sizeof opened);
    if (Handle* const h = handle(opened.fh, false)) h->unused_moves = unused_moves;
}

void Session::open_as(Session& other, const Told& told) { Moves(*this, other, told).open_all(); }

// ---- locks, and the closes that let them go

namespace {

Locks::Holder holder_of(uint64_t session, const Node& node, uint64_t owner, bool flock,
                        const fuse_file_lock& range) {
    const bool index = !flock && range.start == souk_index_byte && range.end == range.start &&
                       node.name.ends_with(souk_index_ends);
    return {session, node.dev, node.ino, owner, flock, index};
}

}  // namespace

// Returns 0, or an error: what it asks for is none of an open file.
int Session::read_lock(const fuse_in_header& head, Words& words, LockAsked& asked) {
    if (!words.take(asked.in)) return -EINVAL;
    asked.handle = handle(asked.in.fh, false);
    asked.node = nodes_.find(head.nodeid);
    if (!asked.handle || !asked.node || asked.handle->node != head.nodeid) return -ESTALE;
    return locks_ ? 0 : -ENOSYS;
}

Session::Done Session::get_lock(const fuse_in_header& head, Words& words, Bytes& out) {
    LockAsked asked;
    if (const int error = read_lock(head, words, asked); error != 0) return error;
    const auto& [in, h, node] = asked;
    fuse_lk_out said{in.lk};
    const int error = locks_->get(holder_of(number_, *node, in.owner, false, in.lk),
                                  {h->fd.get(), in.fh}, said.lk);
    if (error == 0) put(out, said);
    return error;
}

Session::Done Session::set_lock(const fuse_in_header& head, Words& words) {
    LockAsked asked;
    if (const int error = read_lock(head, words, asked); error != 0) return error;
    const auto& [in, h, node] = asked;
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
