// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/files/lock_requests.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "agentd/files/fuse_bytes.hpp"
#include "agentd/files/own_requests.hpp"
#include "kernel/sys/store/served_locks.h"

namespace souk::files {
namespace {

bool parse(ByteView request, fuse_in_header& head, fuse_lk_in& in) {
    return take(request, head) && is_about_lock(head.opcode) && take(request, in);
}

bool takes(const fuse_in_header& head, const fuse_lk_in& in) {
    return head.opcode != FUSE_GETLK && in.lk.type != F_UNLCK;
}

}  // namespace

bool has_succeeded(ByteView answer) {
    fuse_out_header said{};
    return take(answer, said) && said.error == 0;
}

bool is_about_lock(uint32_t opcode) {
    return opcode == FUSE_GETLK || opcode == FUSE_SETLK || opcode == FUSE_SETLKW;
}

Bytes letting_go_request(ByteView request) {
    fuse_in_header head{};
    fuse_lk_in in{};
    if (!parse(request, head, in) || !takes(head, in)) return {};
    in.lk.type = F_UNLCK;
    in.padding = undo_number(head.unique);
    return set_lock_request(head.nodeid, in);
}

Status LockRequests::answer(uint32_t n, int error) {
    const fuse_out_header said{sizeof said, -error, slots_.head(n).unique};
    TRY(to_kernel_(&said, sizeof said));
    slots_.drop(n);
    return {};
}

Status LockRequests::answer_question(uint32_t n, const fuse_lk_in& in, bool yes) {
    struct {
        fuse_out_header head;
        fuse_lk_out out;
    } said{{sizeof said, 0, slots_.head(n).unique}, {in.lk}};
    said.out.lk.type = yes ? F_WRLCK : F_UNLCK;
    TRY(to_kernel_(&said, sizeof said));
    slots_.drop(n);
    return {};
}

void LockRequests::note(uint64_t node) {
    if (!knows_all_) return;
    noted_.insert(node);
    if (noted_.size() <= noted_max) return;
    knows_all_ = false;
    noted_.clear();
}

bool LockRequests::is_full() const {
    uint32_t waiting = 0;
    for (uint32_t n = 0; n < slots; ++n)
        waiting += slots_.at(n).state == Slot::taken && slots_.head(n).opcode == FUSE_SETLKW;
    return waiting >= waits_max;
}

Result<bool> LockRequests::settles(uint32_t n) {
    fuse_in_header head{};
    fuse_lk_in in{};
    if (!parse({slots_.data(n), slots_.at(n).bytes}, head, in)) return false;
    const uint32_t question = head.opcode == FUSE_GETLK ? souk_locks_question(in.lk.start) : 0;
    bool is_settled = true;
    if (question == souk_locks_any && (in.lk.start & UINT32_MAX) == 0) {
        TRY(answer_question(n, in, !knows_all_ || !noted_.empty()));
    } else if (question == souk_locks_any) {
        TRY(answer_question(n, in, may_hold(head.nodeid)));
    } else if (upstream_.welcomed() && !upstream_.can_lock()) {
        TRY(answer(n, in.lk.type == F_UNLCK ? 0 : ENOLCK));  // it greeted after the mount had begun
    } else if (head.opcode == FUSE_SETLKW && takes(head, in) && is_full()) {
        TRY(answer(n, ENOLCK));
    } else if (in.lk.type == F_UNLCK && !may_hold(head.nodeid)) {
        TRY(answer(n, 0));
    } else {
        is_settled = false;
    }
    if (is_settled) return true;
    const bool takes_over = question == souk_locks_adopt || question == souk_locks_fetch;
    if (takes(head, in) || takes_over) note(head.nodeid);
    // CRIU waits for the answer, and the job stands: it does not wait for a home that is away.
    if (question != 0) slots_.at(n).signalled = 1;
    return false;
}

void LockRequests::interrupt(uint32_t n) {
    enum : uint32_t { told = 2 };
    Slot& slot = slots_.at(n);
    if (slot.signalled == told || slots_.head(n).opcode != FUSE_SETLKW) return;
    const int free = slots_.find_free();  // none: it is tried again
    if (free < 0) return;
    slot.signalled = told;
    (void)upstream_.ask(static_cast<uint32_t>(free), interrupt_request(slots_.head(n).unique));
}

bool LockRequests::holds(uint32_t n, ByteView answer, bool changed) {
    fuse_in_header head{};
    fuse_lk_in in{};
    if (!parse({slots_.data(n), slots_.at(n).bytes}, head, in) || !takes(head, in) ||
        !has_succeeded(answer) || !changed)
        return false;
    cache_.file_has_changed(head.nodeid);
    if (!pages_.forget(head.nodeid)) return false;
    granted_.push_back({n, slots_.at(n).seq, {answer.begin(), answer.end()}});
    return true;
}

Status LockRequests::give(const std::function<void(ByteView request)>& undo) {
    for (uint64_t done = pages_.take_done(); done > 0 && !granted_.empty(); --done) {
        const Granted one = std::move(granted_.front());
        granted_.pop_front();
        const Slot& slot = slots_.at(one.n);
        if (slot.state != Slot::taken || slot.seq != one.seq) continue;  // it was answered twice
        const Bytes request(slots_.data(one.n), slots_.data(one.n) + slot.bytes);
        const bool is_late = slot.dropped != Slot::no;
        if (!is_late) TRY(to_kernel_(one.answer.data(), one.answer.size()));
        slots_.drop(one.n);
        if (is_late) undo(request);
    }
    return {};
}

}  // namespace souk::files
