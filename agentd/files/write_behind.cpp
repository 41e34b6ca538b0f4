// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/files/write_behind.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "agentd/files/fuse_bytes.hpp"

namespace souk::files {
namespace {

// Reads a slot's request. True if it is a write, and all its bytes are there.
bool read_write(ByteView rest, fuse_in_header& head, fuse_write_in& in) {
    return take(rest, head) && head.opcode == FUSE_WRITE && take(rest, in) &&
           rest.size() == in.size;
}

// Tells whether the request may be answered ahead: a change of attributes, or a write that is
// neither synced nor the kernel's own (of a mapping, which nobody waits for).
bool may_be_ahead(ByteView request) {
    fuse_in_header head{};
    fuse_write_in in{};
    if (!read_write(request, head, in)) return head.opcode == FUSE_SETATTR;
    return (in.write_flags & FUSE_WRITE_CACHE) == 0 &&
           (in.flags & (O_DSYNC | O_SYNC | O_DIRECT)) == 0;
}

// Returns the error that the home's answer means; 0: the request is done, and whole.
int error_in(ByteView answer, uint32_t opcode, uint32_t size) {
    fuse_out_header said{};
    fuse_write_out done{};
    if (!take(answer, said)) return EIO;
    if (said.error != 0) return said.error < 0 ? -said.error : EIO;
    if (opcode != FUSE_WRITE) return 0;
    if (!take(answer, done) || done.size > size) return EIO;
    return done.size < size ? ENOSPC : 0;  // of a server that does not say why (write_whole)
}

}  // namespace

void WriteWindow::sent(uint64_t bytes) {
    out_ += bytes;
    home_then_.push_back(home_);
}

// Makes the window at least twice as large for each round trip for which it was too small, and half
// as large when a round trip takes long. Answers come in the order of the writes.
void WriteWindow::answered(uint64_t bytes, int64_t sent_ns, int64_t now_ns) {
    out_ -= std::min(out_, bytes);
    home_ += bytes;
    const uint64_t came = home_ - (home_then_.empty() ? home_ : home_then_.front());
    if (!home_then_.empty()) home_then_.pop_front();
    const int64_t took_ns = std::max<int64_t>(now_ns - sent_ns, 1);
    if (took_ns > slow_ns) {
        if (sent_ns < shrunk_ns_) return;
        bytes_ = std::max(bytes_min, bytes_ / 2);
        shrunk_ns_ = now_ns;
    } else if (limited_) {
        constexpr double lately_ns = slow_ns / 2.0;
        const double shown = static_cast<double>(came) * lately_ns / static_cast<double>(took_ns);
        bytes_ =
            shown < bytes_max ? std::max(bytes_ + bytes, static_cast<uint64_t>(shown)) : bytes_max;
        bytes_ = std::min(bytes_max, bytes_);
        limited_ = out_ + bytes > bytes_ / 2;
    }
}

WriteBehind::WriteBehind(Slots& requests) : slots_(requests) {
    for (const FailedWrite& one : slots_.failed()) failed_ += one.error != 0;
    for (uint32_t n = 0; n < slots; ++n)
        if (slots_.at(n).state == Slot::taken && slots_.at(n).dropped == Slot::ahead) answers(n);
    for (uint32_t n = 0; n < slots; ++n) {
        if (slots_.at(n).state != Slot::taken || slots_.head(n).opcode != FUSE_RELEASE) continue;
        if (const auto fh = open_file_of({slots_.data(n), slots_.at(n).bytes}))
            closed(slots_.head(n).nodeid, *fh);
    }
}

bool WriteBehind::may_answer(uint32_t n, int64_t now_ns) {
    const uint32_t bytes = slots_.at(n).bytes;
    lacks_room_ = false;
    if (!slots_.closes_are_heard() || now_ns < careful_until_ns_ ||
        !may_be_ahead({slots_.data(n), bytes}))
        return false;
    // Each may come to an error that is to be kept.
    if (count_ + failed_ >= Slots::failed_max || slots_.free_slots() < left_to_others) return false;
    // The server keeps the answers since the first that has not come.
    if (slots_.span() > slots) return false;
    if (window_.has_room(bytes)) return true;
    window_.refused();
    lacks_room_ = true;
    return false;
}

void WriteBehind::answers(uint32_t n) {
    slots_.at(n).dropped = Slot::ahead;
    if (slots_.head(n).opcode == FUSE_WRITE) {
        const uint32_t whole = write_whole;
        std::memcpy(slots_.data(n) + sizeof(fuse_in_header) + offsetof(fuse_write_in, padding),
                    &whole, sizeof whole);
    }
    ++writes_[slots_.head(n).nodeid];
    ++count_;
    window_.sent(slots_.at(n).bytes);
}

int WriteBehind::answered(uint32_t n, ByteView answer, int64_t now_ns) {
    const Slot& slot = slots_.at(n);
    const fuse_in_header head = slots_.head(n);
    const uint64_t fh = open_file_of({slots_.data(n), slot.bytes}).value_or(0);
    if (const auto it = writes_.find(head.nodeid); it != writes_.end() && --it->second == 0)
        writes_.erase(it);
    --count_;
    const bool was_closed = closed_.contains(fh);
    if (count_ == 0) closed_.clear();
    window_.answered(slot.bytes, slot.since_ns, now_ns);
    fuse_in_header again{};
    fuse_write_in in{};
    (void)read_write({slots_.data(n), slot.bytes}, again, in);
    const int error = error_in(answer, head.opcode, in.size);
    if (error == 0) return 0;
    if (error == ENOSPC || error == EDQUOT || error == EFBIG)
        careful_until_ns_ = now_ns + careful_ns;
    if (!was_closed) failed(head.nodeid, fh, error);
    return error;
}

void WriteBehind::failed(uint64_t node, uint64_t fh, int error) {
    if (find(node, fh)) return;  // of several the first counts
    for (FailedWrite& one : slots_.failed()) {
        if (one.error != 0) continue;  // may_answer leaves room
        one.node = node;
        one.fh = fh;
        one.error = error;
        ++failed_;
        return;
    }
}

FailedWrite* WriteBehind::find(uint64_t node, uint64_t fh) {
    if (failed_ == 0) return nullptr;
    for (FailedWrite& one : slots_.failed())
        if (one.error != 0 && one.node == node && one.fh == fh) return &one;
    return nullptr;
}

int WriteBehind::error(uint64_t node, uint64_t fh) {
    const FailedWrite* const one = find(node, fh);
    return one ? one->error : 0;
}

int WriteBehind::error_of(uint64_t node) {
    if (failed_ == 0) return 0;
    for (const FailedWrite& one : slots_.failed())
        if (one.error != 0 && one.node == node) return one.error;
    return 0;
}

void WriteBehind::heard(uint64_t node, uint64_t fh) {
    FailedWrite* const one = find(node, fh);
    if (!one) return;
    one->error = 0;
    --failed_;
}

void WriteBehind::closed(uint64_t node, uint64_t fh) {
    heard(node, fh);
    if (under_way(node)) closed_.insert(fh);
}

bool WriteBehind::is_home(uint64_t seq) {
    for (uint32_t n = 0; n < slots; ++n) {
        const Slot& slot = slots_.at(n);
        if (slot.state != Slot::taken || slot.seq > seq) continue;
        if (slot.dropped == Slot::ahead || slots_.head(n).opcode == FUSE_WRITE) return false;
    }
    return true;
}

Bytes answer_write(ByteView request) {
    fuse_in_header head{};
    fuse_write_in in{};
    (void)(take(request, head) && take(request, in));
    struct {
        fuse_out_header head;
        fuse_write_out out;
    } answer{{sizeof answer, 0, head.unique}, {in.size, 0}};
    const auto* bytes = reinterpret_cast<const uint8_t*>(&answer);
    return Bytes(bytes, bytes + sizeof answer);
}

bool opens_to_write(ByteView request) {
    fuse_in_header head{};
    uint32_t flags = 0;  // what opens begins with
    if (!take(request, head)) return false;
    const bool opens =
        head.opcode == FUSE_OPEN || head.opcode == FUSE_CREATE || head.opcode == FUSE_TMPFILE;
    return opens && take(request, flags) && (flags & O_ACCMODE) != O_RDONLY;
}

void hear_close(uint32_t opcode, uint8_t* answer, size_t bytes) {
    const bool creates = opcode == FUSE_CREATE || opcode == FUSE_TMPFILE;
    if (!creates && opcode != FUSE_OPEN) return;
    const size_t at = sizeof(fuse_out_header) + (creates ? sizeof(fuse_entry_out) : 0);
    fuse_open_out opened{};
    if (bytes < at + sizeof opened) return;  // an error
    std::memcpy(&opened, answer + at, sizeof opened);
    opened.open_flags &= ~uint32_t{FOPEN_NOFLUSH};
    std::memcpy(answer + at, &opened, sizeof opened);
}

std::optional<uint64_t> open_file_of(ByteView request) {
    fuse_in_header head{};
    uint64_t fh = 0;  // they all begin with it
    fuse_setattr_in in{};
    if (!take(request, head)) return std::nullopt;
    switch (head.opcode) {
        case FUSE_SETATTR: return take(request, in) ? std::optional(in.fh) : std::nullopt;
        case FUSE_WRITE:
        case FUSE_FSYNC:
        case FUSE_FLUSH:
        case FUSE_RELEASE: break;
        default: return std::nullopt;
    }
    if (!take(request, fh)) return std::nullopt;
    return fh;
}

}  // namespace souk::files
