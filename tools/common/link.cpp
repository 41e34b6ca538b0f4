// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/link.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "kernel/base/check.hpp"
#include "kernel/sys/host/clock.hpp"

namespace souk::tools {
namespace {

constexpr size_t read_bytes = 128 * 1024;

int64_t monotonic_ms() { return monotonic_now().ns / 1'000'000; }

}  // namespace

Result<Link> Link::open(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path)
        return fail("socket " + path + ": the path is too long");
    std::memcpy(address.sun_path, path.data(), path.size());
    Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd) return fail_errno("socket", errno);
    // A daemon whose queue is full makes connect wait; it waits this long at most.
    const timeval patience{30, 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) < 0)
        return tl::unexpected(caused_by(
            CauseCode::away, fail_errno("cannot reach the daemon at " + path, errno).value()));
    if (fcntl(fd.get(), F_SETFL, O_NONBLOCK) < 0) return fail_errno("fcntl", errno);
    Link link(std::move(fd));
    link.queue(wire::Hello{});
    return link;
}

void Link::queue(wire::FrameType type, std::string_view body) {
    const auto header = wire::frame_header(wire::agent_words, type, body.size());
    out_.append(reinterpret_cast<const char*>(header.data()), header.size()).append(body);
}

Status Link::flush() {
    while (sent_ < out_.size()) {
        const ssize_t n = send(fd_.get(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return {};
        // its last word may be there to read
        if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) break;
        if (n < 0) return fail_errno("the daemon's connection", errno);
        sent_ += static_cast<size_t>(n);
    }
    out_.clear();
    sent_ = 0;
    return {};
}

Result<bool> Link::receive() {
    MUST(unread_.empty());
    buffer_.resize(read_bytes);
    for (;;) {
        const ssize_t n = recv(fd_.get(), buffer_.data(), buffer_.size(), 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return true;
        if (n < 0) return fail_errno("the daemon's connection", errno);
        unread_ = ByteView(buffer_).first(static_cast<size_t>(n));
        return n > 0;
    }
}

Result<bool> Link::own(const Frame& frame) {
    if (frame.type == wire::frame_ping) queue(wire::frame_pong, {});
    if (frame.type != wire::frame::welcome) return frame.type == wire::frame_ping;
    TRY_ASSIGN(const auto welcome, wire::unpack<wire::Welcome>(frame.body));
    TRY(wire::check_version(welcome.version, welcome.program));
    name_ = welcome.name;
    return true;
}

Result<std::optional<Link::Frame>> Link::next() {
    for (;;) {
        auto frame = decoder_.next(unread_);
        if (!frame) return wrap("the daemon", frame.error());
        if (!*frame) return std::nullopt;
        TRY_ASSIGN(const bool mine, own(**frame));
        if (!mine) return **frame;
    }
}

Status Link::wait(int64_t until_ms) {
    for (;;) {
        TRY(flush());
        const int64_t left = until_ms - monotonic_ms();
        pollfd poller{fd_.get(), static_cast<short>(POLLIN | (has_queued() ? POLLOUT : 0)), 0};
        if (left <= 0 || poll(&poller, 1, static_cast<int>(left)) == 0)
            return tl::unexpected(Error{ETIMEDOUT, "no answer from the daemon"});
        if (!(poller.revents & ~POLLOUT)) continue;
        TRY_ASSIGN(const bool open, receive());
        if (!open) return tl::unexpected(Error{ECONNRESET, "the daemon has closed the connection"});
        return {};
    }
}

Result<Link::Frame> Link::await(Nanos limit) {
    const int64_t until_ms = monotonic_ms() + limit.ns / 1'000'000;
    for (;;) {
        TRY_ASSIGN(const auto frame, next());
        if (frame && frame->type == wire::frame::error_text) {
            TRY_ASSIGN(const auto error, wire::unpack<wire::ErrorText>(frame->body));
            return fail(error.text.code, error.text);
        }
        if (frame) return *frame;
        TRY(wait(until_ms));
    }
}

Result<std::string> Link::peer_name(Nanos limit) {
    const int64_t until_ms = monotonic_ms() + limit.ns / 1'000'000;
    while (!name_) {
        TRY_ASSIGN(const auto frame, next());
        if (frame && frame->type == wire::frame::error_text) {
            TRY_ASSIGN(const auto error, wire::unpack<wire::ErrorText>(frame->body));
            return fail(error.text.code, error.text);
        }
        if (frame) return fail("an unexpected answer from the daemon");
        if (!name_) TRY(wait(until_ms));
    }
    return *name_;
}

}  // namespace souk::tools
