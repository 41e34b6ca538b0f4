// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/files/upstream.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace souk::files {

Status Upstream::connect(Fd stream, const Hello& hello) {
    stream_ = std::move(stream);
    talk_ = Talk();
    welcomed_ = can_prove_ = can_count_ = can_lock_ = false;
    known_ = known_told_ = 0;
    sent_ = 0;
    say_.clear();
    // Requests without an answer are sent again, in the order in which they were taken.
    to_send_.clear();
    for (uint32_t n = 0; n < slots; ++n)
        if (slots_.at(n).state == Slot::taken) queue(n);
    std::sort(to_send_.begin(), to_send_.end(),
              [this](uint32_t a, uint32_t b) { return slots_.at(a).seq < slots_.at(b).seq; });
    const Head first{sizeof hello, Kind::hello, 0, slots_.acked()};
    iovec parts[2] = {{const_cast<Head*>(&first), sizeof first},
                      {const_cast<Hello*>(&hello), sizeof hello}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    // The server may have ended by now.
    if (::sendmsg(stream_.get(), &message, MSG_NOSIGNAL) != sizeof first + sizeof hello)
        return fail_errno("greet the server of files", errno);
    return {};
}

uint64_t Upstream::ask(uint32_t n, ByteView request) {
    Slot& slot = slots_.at(n);
    std::memcpy(slots_.data(n), request.data(), request.size());
    slot.bytes = static_cast<uint32_t>(request.size());
    slot.dropped = Slot::yes;
    slot.signalled = 0;
    slots_.take(n, 0);
    queue(n);
    return slot.seq;
}

void Upstream::prove(const Prove& by) {
    const Head first{sizeof by, Kind::prove, 0, slots_.acked()};
    say_.resize(sizeof first + sizeof by);
    std::memcpy(say_.data(), &first, sizeof first);
    std::memcpy(say_.data() + sizeof first, &by, sizeof by);
}

// Tells the count now and then, not with each request.
void Upstream::tell_known() {
    constexpr uint64_t worth_telling = 100;
    const bool news = known_ - known_told_ >= (known_told_ == 0 ? 1 : worth_telling);
    if (!news || !can_count_ || !say_.empty() || to_send_.empty()) return;
    known_told_ = known_;
    const Head head{0, Kind::known, known_, slots_.acked()};
    say_.resize(sizeof head);
    std::memcpy(say_.data(), &head, sizeof head);
}

// Sends such words between two requests.
Status Upstream::send_said() {
    while (sent_ == 0 && !say_.empty()) {
        const ssize_t left =
            ::send(stream_.get(), say_.data(), say_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (left < 0) return fail_errno("send to the home", errno);
        say_.erase(say_.begin(), say_.begin() + left);
    }
    return {};
}

Status Upstream::send() {
    const auto later = [](int code) { return code == EAGAIN || code == EINTR; };
    if (!welcomed_) return {};
    tell_known();
    if (Status said = send_said(); !said) return later(said.error().code) ? Status{} : said;
    while (!to_send_.empty()) {
        const uint32_t n = to_send_.front();
        const Slot& slot = slots_.at(n);
        if (sent_ == 0) sending_ = {slot.bytes, Kind::request, slot.seq, slots_.acked()};
        iovec parts[2];
        int count = 0;
        if (sent_ < sizeof sending_)
            parts[count++] = {reinterpret_cast<uint8_t*>(&sending_) + sent_,
                              sizeof sending_ - sent_};
        const size_t body_sent = sent_ > sizeof sending_ ? sent_ - sizeof sending_ : 0;
        parts[count++] = {slots_.data(n) + body_sent, slot.bytes - body_sent};
        msghdr message{};
        message.msg_iov = parts;
        message.msg_iovlen = static_cast<size_t>(count);
        const ssize_t left = ::sendmsg(stream_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (left < 0 && later(errno)) return {};
        if (left < 0) return fail_errno("send to the home", errno);
        sent_ += static_cast<size_t>(left);
        if (sent_ < sizeof sending_ + slot.bytes) continue;
        sent_ = 0;
        to_send_.pop_front();
    }
    return {};
}

Status Upstream::take_welcome(const Talk::Message& message) {
    if (welcomed_) return fail("the server greets twice");
    Welcome welcome;
    std::memcpy(&welcome, message.body.data(), sizeof welcome);
    if (welcome.version != talk_version)
        return fail("the home's server of files speaks version " + std::to_string(welcome.version) +
                    ", this node's " + std::to_string(talk_version));
    welcomed_ = true;
    can_prove_ = (welcome.known & 2) != 0;
    can_count_ = (welcome.known & 4) != 0;
    can_lock_ = (welcome.known & 8) != 0;
    return {};
}

Status Upstream::receive(const std::function<void()>& greeted,
                         const std::function<Status(const Talk::Message&)>& take) {
    for (int turn = 0; turn < 64; ++turn) {
        uint8_t* room = talk_.room();
        const ssize_t got = ::recv(stream_.get(), room, talk_.room_bytes(), MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return {};
        if (got < 0) return fail_errno("receive from the home", errno);
        if (got == 0) return fail("the stream has ended");
        talk_.took(static_cast<size_t>(got));
        TRY_ASSIGN(const auto message, talk_.next());
        if (!message) continue;
        if (message->head.kind == Kind::welcome) {
            TRY(take_welcome(*message));
            greeted();
            continue;
        }
        if (!welcomed_) return fail("an unexpected message");
        TRY(take(*message));
    }
    return {};
}

}  // namespace souk::files
