// SPDX-License-Identifier: GPL-2.0-or-later
// Upstream: a client's stream to the server of its files. What is taken in Slots is sent in the
// order in which it was queued, and after a new stream all of it again that has no answer. What the
// server says is given on, message by message, once it has greeted.
//
// Owned by the client. What fails: the stream; the client then waits for another.
#pragma once

#include <deque>
#include <functional>

#include "agentd/files/slots.hpp"
#include "agentd/files/talk.hpp"

namespace souk::files {

class Upstream {
  public:
    explicit Upstream(Slots& requests) : slots_(requests) {}

    // A stream in place of the one before; `hello` is the first that is said on it.
    Status connect(Fd stream, const Hello& hello);
    // There is no stream until the next one is connected.
    void drop() { stream_.reset(); }
    int fd() const { return stream_.get(); }
    bool connected() const { return static_cast<bool>(stream_); }
    // The server has greeted.
    bool welcomed() const { return welcomed_; }
    // Tells that the server takes Prove.
    bool can_prove() const { return can_prove_; }
    // Tells that the server takes locks.
    bool can_lock() const { return can_lock_; }
    bool idle() const { return to_send_.empty(); }
    bool wants_to_send() const { return welcomed_ && (!to_send_.empty() || !say_.empty()); }

    // A request that is taken.
    void queue(uint32_t n) { to_send_.push_back(n); }
    // A request of the client's own, of which its kernel does not know, in a slot that is free. Its
    // number.
    uint64_t ask(uint32_t n, ByteView request);
    // One more request of the kernel was answered without the server, which hears of it later.
    void knew() { ++known_; }
    // Ahead of the next request.
    void prove(const Prove& by);
    Status send();
    // `take` hears each message but the greeting; `greeted`, once, that this has come.
    Status receive(const std::function<void()>& greeted,
                   const std::function<Status(const Talk::Message&)>& take);

  private:
    Status take_welcome(const Talk::Message& message);
    Status send_said();
    void tell_known();

    Slots& slots_;
    Fd stream_;  // none while the home is away
    Talk talk_;
    bool welcomed_ = false, can_prove_ = false, can_count_ = false, can_lock_ = false;
    uint64_t known_ = 0, known_told_ = 0;  // since the stream began
    Bytes say_;
    std::deque<uint32_t> to_send_;
    // of the first of them: its head, and how much of head and body has left
    Head sending_;
    size_t sent_ = 0;
};

}  // namespace souk::files
