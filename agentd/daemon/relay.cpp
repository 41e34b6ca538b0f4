// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/relay.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "kernel/sys/net/socket.hpp"

namespace souk {
namespace {

constexpr size_t turn_bytes = 1 << 20;  // then others have their turn

// Bytes that the socket takes now; 0: none.
Result<size_t> send_some(int socket, const char* bytes, size_t count) {
    const ssize_t sent = ::send(socket, bytes, count, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) return static_cast<size_t>(sent);
    if (errno == EAGAIN || errno == EINTR) return size_t{0};
    return fail_errno("send", errno);
}

}  // namespace

Relay::Relay(Loop& loop, Bytes& buffer, Fd one, Fd other, std::function<void()> ended)
    : loop_(loop), buffer_(buffer), ended_(std::move(ended)), moved_(Loop::now()) {
    ends_[0].socket = std::move(one);
    ends_[1].socket = std::move(other);
    buffer_.resize(buffer_bytes);
}

Status Relay::begin() {
    for (size_t i = 0; i < ends_.size(); ++i) {
        const int socket = ends_[i].socket.get();
        end_when_dead(socket, 30, 10, 60);
        (void)set_no_delay(socket);
        TRY_ASSIGN(ends_[i].watch,
                   loop_.watch(socket, POLLIN, [this, i](short events) { ready(i, events); }));
    }
    return {};
}

void Relay::ready(size_t end_number, short events) {
    if (!ended_) return;
    End &own = ends_[end_number], &other = ends_[1 - end_number];
    const auto go = [&]() -> Status {
        if ((events & POLLOUT) != 0) TRY(flush(own));
        if (own.says_more && (events & (POLLIN | POLLHUP | POLLERR)) != 0) TRY(pump(own, other));
        TRY(tell_end(own, other));
        return tell_end(other, own);
    };
    if (!go() || (ends_[0].told && ends_[1].told)) return end();
    arm();
}

Status Relay::pump(End& from, End& to) {
    auto* const bytes = reinterpret_cast<char*>(buffer_.data());
    for (size_t turn = 0; turn < turn_bytes && to.waits.empty();) {
        const ssize_t got = ::recv(from.socket.get(), bytes, buffer_bytes, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return {};
        if (got < 0) return fail_errno("receive", errno);
        if (got == 0) {
            from.says_more = false;
            return {};
        }
        const size_t count = static_cast<size_t>(got);
        TRY_ASSIGN(const size_t sent, send_some(to.socket.get(), bytes, count));
        to.waits.assign(bytes + sent, count - sent);
        turn += count;
        bytes_ += count;
        moved_ = Loop::now();
    }
    return {};
}

Status Relay::flush(End& to) {
    TRY_ASSIGN(const size_t sent, send_some(to.socket.get(), to.waits.data(), to.waits.size()));
    to.waits.erase(0, sent);
    if (to.waits.empty()) to.waits.shrink_to_fit();
    return {};
}

Status Relay::tell_end(const End& from, End& to) {
    if (from.says_more || to.told || !to.waits.empty()) return {};
    to.told = true;
    if (::shutdown(to.socket.get(), SHUT_WR) != 0) return fail_errno("shutdown", errno);
    return {};
}

void Relay::arm() {
    for (size_t i = 0; i < ends_.size(); ++i) {
        const bool reads = ends_[i].says_more && ends_[1 - i].waits.empty();
        const int events = (reads ? POLLIN : 0) | (ends_[i].waits.empty() ? 0 : POLLOUT);
        ends_[i].watch.set_events(static_cast<short>(events));
    }
}

void Relay::end() {
    for (End& one : ends_) one.watch.close();
    std::exchange(ended_, nullptr)();
}

}  // namespace souk
