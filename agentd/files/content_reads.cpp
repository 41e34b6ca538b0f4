// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/files/content_reads.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "agentd/files/own_requests.hpp"

namespace souk::files {
namespace {
constexpr int64_t store_ns = 500'000'000;  // a content that is looked for
}  // namespace

void ContentReads::forget() {
    local_.forget();
    bring_seq_ = 0;
    waiting_.clear();
}

bool ContentReads::takes(uint32_t n, int64_t now_ns) {
    const uint64_t node = slots_.head(n).nodeid;
    fuse_read_in in{};
    std::memcpy(&in, slots_.data(n) + sizeof(fuse_in_header), sizeof in);
    const fuse_attr* const attr = cache_.attributes(node, now_ns);
    if (!attr && local_.renews(node, now_ns)) renew(node);
    switch (local_.where(node, attr, in.size)) {
        case LocalContents::Where::home: return false;
        case LocalContents::Where::here:
            slots_.take(n, now_ns);
            if (!read(n)) upstream_.queue(n);
            return true;
        case LocalContents::Where::wait: break;
    }
    slots_.take(n, now_ns);
    waiting_.push_back({n, slots_.at(n).seq, node, now_ns + store_ns});
    return true;
}

// An error: it is not to be read here.
Status ContentReads::read(uint32_t n) {
    static Bytes answer;
    const fuse_in_header h = slots_.head(n);
    fuse_read_in in{};
    std::memcpy(&in, slots_.data(n) + sizeof h, sizeof in);
    fuse_out_header out{};
    answer.resize(sizeof out + std::min(in.size, data_bytes_max));
    const ssize_t got = ::pread(local_.file(h.nodeid), answer.data() + sizeof out,
                                answer.size() - sizeof out, static_cast<off_t>(in.offset));
    if (got < 0) return fail_errno("read a content", errno);
    out.len = static_cast<uint32_t>(sizeof out + static_cast<size_t>(got));
    out.unique = h.unique;
    std::memcpy(answer.data(), &out, sizeof out);
    if (!slots_.at(n).dropped) TRY(to_kernel_(answer.data(), out.len));
    slots_.drop(n);
    upstream_.knew();
    return {};
}

void ContentReads::decide(int64_t now_ns) {
    const bool may_wait = slots_.span() <= slots / 2;
    for (const Waiting& w : std::exchange(waiting_, {})) {
        Slot& slot = slots_.at(w.slot);
        if (slot.state != Slot::taken || slot.seq != w.seq) continue;
        if (slot.dropped) {
            slots_.drop(w.slot);
            continue;
        }
        const auto where = local_.where(w.node, cache_.attributes(w.node, now_ns), 0);
        if (where == LocalContents::Where::here && read(w.slot)) continue;
        if (where == LocalContents::Where::wait && now_ns < w.until_ns && may_wait)
            waiting_.push_back(w);
        else
            upstream_.queue(w.slot);
    }
}

void ContentReads::hear() {
    const bool had = local_.prove().has_value();
    local_.hear();
    if (!had) prove();
}

void ContentReads::prove() {
    if (upstream_.welcomed() && upstream_.can_prove() && local_.prove())
        upstream_.prove(*local_.prove());
}

// The lease of a file that is read has ended: the next read is from here again.
void ContentReads::renew(uint64_t node) {
    if (const int n = slots_.find_free(); n >= 0)
        (void)upstream_.ask(static_cast<uint32_t>(n), attributes_request(node));
}

void ContentReads::bring() {
    if (!upstream_.welcomed() || !upstream_.connected() || bring_seq_ != 0 || !upstream_.idle())
        return;
    const int n = slots_.find_free();
    Bytes request;
    if (n < 0 || !local_.next_request(request)) return;
    bring_seq_ = upstream_.ask(static_cast<uint32_t>(n), request);
}

bool ContentReads::took(uint64_t seq, ByteView answer) {
    if (seq != bring_seq_) return false;
    bring_seq_ = 0;
    local_.answered(answer);
    return true;
}

}  // namespace souk::files
