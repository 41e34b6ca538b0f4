// SPDX-License-Identifier: GPL-2.0-or-later
// BulkSender: the source's end of a connection of role `image` to another agentd: made and greeted,
// then, at once or later, a frame that says what comes, and then bytes as fast as the connection
// takes them and the owner lets them go, in slices, so that nothing else is held up. It ends with
// one `ended`: no connection, a silent or broken peer, or bytes that cannot be had; after that
// nothing is called. May be dropped at any time, in its own callbacks too. Owned by Transfers
// (images) and PrecopyLinks (memory ahead of them).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "agentd/core/messages.hpp"
#include "agentd/daemon/ways.hpp"
#include "agentd/wire/codec.hpp"
#include "kernel/sys/loop/loop.hpp"
#include "kernel/wire/channel.hpp"
#include "kernel/wire/tls.hpp"

namespace souk {

// The sender as its hello names it, with its certificate (null: there is none), and how it
// connects.
struct BulkIdentity {
    NodeName node;
    std::string address;
    wire::Tls* tls;
    Ways* ways;
};

class BulkSender {
  public:
    struct Handlers {
        // the destination's words, its welcome among them
        std::function<void(const wire::Frame&)> frame;
        // what is next; empty: nothing for now, `pump` again
        std::function<Result<std::string_view>()> piece;
        std::function<void(size_t bytes)> sent;  // so much of it has left
        std::function<void()> idle;              // there was none
        // Cuts the piece to what may go now; else how long it is to wait. Null: all of it may.
        std::function<Nanos(std::string_view& piece)> hold = {};
        std::function<void(const std::string& why)> ended;
    };
    // Connects, and says hello.
    BulkSender(Loop& loop, const BulkIdentity& own, const Peer& dest, Handlers handlers);
    BulkSender(const BulkSender&) = delete;

    // Once: what follows the hello. Bytes may follow it from the welcome on.
    void begin(wire::FrameType first, std::string body);
    // Sends what there is, now or soon. A peer that takes nothing for 20 s ends it, as does one
    // that says nothing to the first frame or to what was sent; not_waiting: nothing of it is
    // awaited any more.
    void pump();
    void pump_soon();
    void not_waiting() { stall_.cancel(); }

    // Why an error frame, or one that nobody expects, ends the connection.
    static std::string refusal(const wire::Frame& frame);

  private:
    Status connect();
    void connected(Result<Fd> socket);
    void broke(const std::string& why);
    Status pump_some();
    void hear_last_words(const std::string& otherwise);
    void end(const std::string& why);
    void expect(const char* otherwise);

    Loop& loop_;
    std::shared_ptr<const Handlers> handlers_;  // one may drop this object while it runs
    const BulkIdentity own_;
    const Peer dest_;
    Way connecting_;
    std::optional<std::pair<wire::FrameType, std::string>> first_;  // what follows the hello
    bool heard_ = false;       // the destination has said something
    bool by_gateway_ = false;  // goes the connection
    std::unique_ptr<wire::Channel> channel_;
    Watch writable_;
    Timer stall_, again_;
};

}  // namespace souk
