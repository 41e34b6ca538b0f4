// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/files/ahead_writes.hpp"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "kernel/sys/host/clock.hpp"

namespace souk::files {

Status AheadWrites::begin() {
    for (uint32_t n = 0; n < slots; ++n) {
        if (slots_.at(n).state != Slot::taken || slots_.at(n).dropped != Slot::ahead) continue;
        cache_.writing(slots_.head(n).nodeid);
        if (slots_.head(n).opcode != FUSE_WRITE) continue;  // when the home has answered
        const Bytes answer = answer_write({slots_.data(n), slots_.at(n).bytes});
        TRY(to_kernel_(answer.data(), answer.size()));
    }
    return {};
}

Status AheadWrites::answer(uint32_t n, int error) {
    const fuse_out_header said{sizeof said, -error, slots_.head(n).unique};
    TRY(to_kernel_(&said, sizeof said));
    slots_.drop(n);
    return {};
}

// An error is forgotten when the kernel has it, not before; and if it is the job that has asked.
// Of who asks the kernel says the pid in the capsule: 0 outside of it, where agentd copies
// descriptors. CRIU is inside, and closes its copies while the job's own are open: the release of
// the file forgets what its close was told.
void AheadWrites::heard(const fuse_in_header& h, uint64_t fh, int64_t now_ns) {
    if (h.pid == 0 || (h.opcode == FUSE_FLUSH && now_ns < copied_until_ns_)) return;
    writes_.heard(h.nodeid, fh);
}

Result<bool> AheadWrites::settles(uint32_t n, int64_t now_ns) {
    const ByteView whole(slots_.data(n), slots_.at(n).bytes);
    const fuse_in_header h = slots_.head(n);
    if (h.opcode != FUSE_SETATTR && h.opcode != FUSE_WRITE) made_.asked(whole);
    const auto fh = h.opcode == FUSE_SETATTR ? std::nullopt : open_file_of(whole);
    if (!fh) return false;
    switch (h.opcode) {
        case FUSE_RELEASE: writes_.closed(h.nodeid, *fh); return false;
        case FUSE_FLUSH:
            if (h.pid == 0) {
                TRY(answer(n, 0));
                return true;
            }
            if (writes_.under_way(h.nodeid) || locked_(h.nodeid)) return false;
            break;
        case FUSE_FSYNC:
            if (writes_.under_way(h.nodeid) || writes_.error_of(h.nodeid) == 0) return false;
            break;
        default:
            if (writes_.error(h.nodeid, *fh) == 0) return false;
    }
    const int error =
        h.opcode == FUSE_FSYNC ? writes_.error_of(h.nodeid) : writes_.error(h.nodeid, *fh);
    TRY(answer(n, error));
    heard(h, *fh, now_ns);
    return true;
}

// Empty: the home answers it.
Bytes AheadWrites::answer_ahead(uint32_t n, int64_t now_ns, bool connected) {
    const ByteView whole(slots_.data(n), slots_.at(n).bytes);
    const uint32_t opcode = slots_.head(n).opcode;
    if (opcode != FUSE_WRITE && opcode != FUSE_SETATTR) return {};
    const bool may = connected && writes_.may_answer(n, now_ns);
    uint64_t fh = 0;
    Bytes answer;
    if (may && opcode == FUSE_SETATTR)
        answer = made_.answer(whole, unix_now().ns / 1'000'000'000, fh);
    if (may && opcode == FUSE_WRITE) answer = answer_write(whole);
    if (opcode == FUSE_WRITE || answer.empty()) made_.asked(whole);
    if (fh != 0)  // who hears of an error; the server looks at it with FATTR_FH alone
        std::memcpy(slots_.data(n) + sizeof(fuse_in_header) + offsetof(fuse_setattr_in, fh), &fh,
                    sizeof fh);
    return answer;
}

Status AheadWrites::taken(uint32_t n, int64_t now_ns, bool connected) {
    const Bytes answer = answer_ahead(n, now_ns, connected);
    if (!answer.empty()) return answers(n, answer);
    if (connected && writes_.lacks_room() && slots_.head(n).opcode == FUSE_WRITE)
        waiting_.push_back({n, slots_.at(n).seq});
    return {};
}

Status AheadWrites::answers(uint32_t n, const Bytes& answer) {
    writes_.answers(n);
    cache_.writing(slots_.head(n).nodeid);
    return to_kernel_(answer.data(), answer.size());
}

// Answers waiting requests in their order. The kernel takes each answer, unless the mount ends.
void AheadWrites::answer_waiting(int64_t now_ns) {
    std::erase_if(waiting_, [&](const Waiting& one) {
        const Slot& slot = slots_.at(one.n);
        if (slot.state != Slot::taken || slot.seq != one.seq || slot.dropped != Slot::no)
            return true;
        if (!writes_.may_answer(one.n, now_ns)) return false;
        (void)answers(one.n, answer_write({slots_.data(one.n), slot.bytes}));
        return true;
    });
}

bool AheadWrites::took(uint32_t n, ByteView answer, int64_t now_ns) {
    if (slots_.at(n).dropped != Slot::ahead) return false;
    const uint64_t node = slots_.head(n).nodeid;
    const int error = writes_.answered(n, answer, now_ns);
    cache_.written(node);
    // An earlier client may have died before it had answered this request.
    if (slots_.at(n).seq <= from_before_ && slots_.head(n).opcode == FUSE_SETATTR)
        (void)to_kernel_(answer.data(), answer.size());
    slots_.drop(n);
    if (error != 0) refused_(node);
    answer_waiting(now_ns);
    return true;
}

Bytes AheadWrites::as_told(uint32_t n, ByteView answer, bool hears) {
    const ByteView whole(slots_.data(n), slots_.at(n).bytes);
    const fuse_in_header h = slots_.head(n);
    fuse_out_header said{};
    if (answer.size() < sizeof said) return {};
    made_.answered(whole, answer);
    std::memcpy(&said, answer.data(), sizeof said);
    if (opens_to_write(whole) || (hears && h.opcode == FUSE_OPEN)) {
        Bytes heard(answer.begin(), answer.end());
        hear_close(h.opcode, heard.data(), heard.size());
        return heard;
    }
    const bool asks = h.opcode == FUSE_FSYNC || h.opcode == FUSE_FLUSH;
    const auto fh = asks && said.error == 0 ? open_file_of(whole) : std::nullopt;
    if (!fh) return {};
    const int error =
        h.opcode == FUSE_FSYNC ? writes_.error_of(h.nodeid) : writes_.error(h.nodeid, *fh);
    if (error == 0) return {};
    said.len = sizeof said;
    said.error = -error;
    Bytes bytes(sizeof said);
    std::memcpy(bytes.data(), &said, sizeof said);
    return bytes;
}

void AheadWrites::told(uint32_t n, const Bytes& answer, int64_t now_ns) {
    const fuse_in_header h = slots_.head(n);
    if (answer.empty() || (h.opcode != FUSE_FSYNC && h.opcode != FUSE_FLUSH)) return;
    if (const auto fh = open_file_of({slots_.data(n), slots_.at(n).bytes})) heard(h, *fh, now_ns);
}

void AheadWrites::ask(Fd who) {
    if (asked_.size() >= asked_max) asked_.erase(asked_.begin());
    asked_.push_back({std::move(who), slots_.last_seq()});
}

void AheadWrites::tell(bool synced) {
    const char* const says = writes_.has_errors() ? "e" : synced ? "s" : "d";
    std::erase_if(asked_, [&](const Asked& asked) {
        if (!writes_.is_home(asked.seq)) return false;
        (void)::send(asked.who.get(), says, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        return true;
    });
}

}  // namespace souk::files
