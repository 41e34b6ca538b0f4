// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/files/talk.hpp"

#include <algorithm>
#include <cstring>

namespace souk::files {
namespace {

Status check(const Head& head) {
    switch (head.kind) {
        case Kind::attach:
        case Kind::leave:
        case Kind::known:
            if (head.bytes == 0) return {};
            break;
        case Kind::hello:
            if (head.bytes == sizeof(Hello)) return {};
            break;
        case Kind::welcome:
            if (head.bytes == sizeof(Welcome)) return {};
            break;
        case Kind::request:
        case Kind::answer:
        case Kind::told:
            if (head.bytes <= request_bytes_max) return {};
            break;
        case Kind::prove:
            if (head.bytes == sizeof(Prove)) return {};
            break;
        case Kind::content:
            if (head.bytes == sizeof(Content)) return {};
            break;
        case Kind::recall:
            if (head.bytes >= sizeof(Recall) && head.bytes <= sizeof(Recall) + name_bytes_max)
                return {};
            break;
        default:
            return fail("files: a message of kind " +
                        std::to_string(static_cast<uint32_t>(head.kind)));
    }
    return fail("files: a message of " + std::to_string(head.bytes) + " bytes");
}

}  // namespace

uint8_t* Talk::room() {
    if (given_) {
        given_ = false;
        held_ = 0;
        wanted_ = sizeof(Head);
    }
    return buffer_.data() + held_;
}

Result<std::optional<Talk::Message>> Talk::next() {
    if (given_ || held_ < wanted_) return std::nullopt;
    Head head;
    std::memcpy(&head, buffer_.data(), sizeof head);
    if (wanted_ == sizeof head) {
        TRY(check(head));
        wanted_ += head.bytes;
        if (buffer_.size() < wanted_) buffer_.resize(wanted_);
        if (held_ < wanted_) return std::nullopt;
    }
    given_ = true;
    return Message{head, ByteView(buffer_).subspan(sizeof head, head.bytes)};
}

uint64_t RequestCount::feed(ByteView bytes) {
    uint64_t requests = 0;
    while (!bytes.empty()) {
        if (left_ > 0) {
            const size_t skipped = std::min<uint64_t>(left_, bytes.size());
            left_ -= skipped;
            bytes = bytes.subspan(skipped);
            continue;
        }
        const size_t some = std::min(sizeof head_ - held_, bytes.size());
        std::memcpy(head_ + held_, bytes.data(), some);
        held_ += some;
        bytes = bytes.subspan(some);
        if (held_ < sizeof head_) break;
        Head head;
        std::memcpy(&head, head_, sizeof head);
        left_ = head.bytes;
        held_ = 0;
        if (head.kind == Kind::request) ++requests;
        if (head.kind == Kind::known) known_ = std::max(known_, head.seq);
    }
    return requests;
}

}  // namespace souk::files
