// SPDX-License-Identifier: GPL-2.0-or-later
// Link: a tool's connection to its agentd (or to marketd) over a unix socket, carrying frames.
// Never blocks but in open() and await(); the caller waits on fd(). One owner; a broken link is
// dropped and a new one opened.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "agentd/wire/codec.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/wire/frame.hpp"

namespace souk::tools {

// The error of an answer that is a refusal: EHOSTDOWN where the daemon it needs is away.
inline Error refusal(const wire::CtlReply& reply) {
    return {reply.away ? EHOSTDOWN : 0, reply.error, reply.error.code};
}

class Link {
  public:
    using Frame = wire::Frame;  // its body is valid until the next call of next() or receive()

    // Connects and queues the hello; the welcome is taken by next(). Errors: nobody listens there.
    static Result<Link> open(const std::string& path);

    int fd() const { return fd_.get(); }
    template <class T>
    void queue(const T& message) {
        queue(wire::frame_type<T>, wire::pack(message));
    }
    bool has_queued() const { return sent_ < out_.size(); }
    size_t queued_bytes() const { return out_.size() - sent_; }
    // Writes what the socket takes now.
    Status flush();
    // Reads what has come, once next() has given all that was read before; false when the other end
    // has closed.
    Result<bool> receive();
    // The next whole frame that receive() has read. Errors: a frame of no known type or too long.
    Result<std::optional<Frame>> next();

    // Sends all and waits for the next frame. Errors: the limit passed (ETIMEDOUT, and it may be
    // waited for again), the link broke, an `error`
    // frame (its text).
    Result<Frame> await(Nanos limit);
    // The node's or the market's own name, as its welcome says it.
    Result<std::string> peer_name(Nanos limit);
    // The next frame, which must be of this message.
    template <class T>
    Result<T> expect(Nanos limit) {
        TRY_ASSIGN(const Frame frame, await(limit));
        if (frame.type != wire::frame_type<T>) return fail("an unexpected answer from the daemon");
        return wire::unpack<T>(frame.body);
    }

  private:
    explicit Link(Fd fd) : fd_(std::move(fd)) {}
    void queue(wire::FrameType type, std::string_view body);
    Status wait(int64_t until_ms);         // until something has come; sends meanwhile
    Result<bool> own(const Frame& frame);  // was it for the link itself?

    Fd fd_;
    std::optional<std::string> name_;
    std::string out_;
    size_t sent_ = 0;
    wire::FrameDecoder decoder_{wire::agent_words, wire::Side::connector};
    Bytes buffer_;
    ByteView unread_;  // in buffer_
};

}  // namespace souk::tools
