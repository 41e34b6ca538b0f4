// SPDX-License-Identifier: GPL-2.0-or-later
// Channel: frames over a connected socket, on the event loop. Owned by whoever handles the
// connection, as a unique_ptr that may be dropped at any time, inside the channel's own callbacks
// too; after that none is called. It ends with one on_closed: the peer left, the socket broke, the
// first frame did not come in time, the peer fell silent, reads nothing of what waits for it, or
// sent what is no frame (then it is told so in an error frame first).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "kernel/base/cause.hpp"
#include "kernel/sys/loop/loop.hpp"
#include "kernel/wire/frame.hpp"
#include "kernel/wire/transport.hpp"

namespace souk::wire {

struct ChannelHandlers {
    std::function<void(const Frame&)> on_frame;   // the body is valid during the call only
    std::function<void(const Error&)> on_closed;  // the last callback
    std::function<void()> on_drain;               // as StreamHandlers::on_drain; may be empty
    // Asked when a frame has come in part, which Channel::received() now counts. An error ends the
    // connection, and the peer is told it. May be empty: then a frame alone is bounded.
    std::function<Status()> may_keep = {};
};

struct ChannelOptions {
    Words words = nullptr;  // that this connection knows; must be given
    Side side = Side::acceptor;
    Nanos first_frame_limit = Nanos::from_s(5);
    // Ping a peer of which nothing came for that long, give it up after three pings without answer,
    // or when it has taken nothing of what is queued for it for as long as that takes; 0: never
    // (local sockets, where a reader may be stopped).
    Nanos keepalive = Nanos{0};
    // at least a frame of the biggest type that is sent here; send() fails
    // above it: the owner ends a connection whose peer does not read
    size_t send_queue_bytes_max = 4 << 20;
    // for last words, when closed by finish() or refuse()
    Nanos linger = Nanos::from_s(2);
};

class Channel {
  public:
    static Result<std::unique_ptr<Channel>> open(
        Loop& loop, Fd socket, ChannelHandlers handlers, ChannelOptions options,
        std::unique_ptr<Transport> transport = plain_transport());
    ~Channel();
    Channel(const Channel&) = delete;

    // Queues a frame for the end of this iteration. All or nothing: an error (code ENOBUFS when the
    // queue is full, the body is longer than its type may be, or the connection is gone) queues
    // nothing.
    Status send(FrameType type, std::string_view body);
    size_t queued() const { return stream_.queued(); }
    // Bytes held of what the peer has sent and nobody has got yet.
    size_t received() const { return decoder_.held() + held_.size(); }
    // The longest body that send() takes now.
    size_t room() const;

    // Bulk data goes past frames and queue. From the next byte on, what the peer sends is given to
    // `on_bytes`, for good, and this side pings no more; to be called in on_frame.
    void receive_raw(std::function<void(ByteView)> on_bytes);
    // Returns how many of these bytes the connection takes now, at once; 0: try again when fd() is
    // writable. No frame may be queued, and none be sent after it.
    Result<size_t> send_raw(ByteView bytes);

    // From now on only these frames may come. Of a frame of any other type, or a longer one, not
    // even the body is read. What we send keeps to ChannelOptions::words.
    void allow(Words words) { decoder_.allow(words); }

    // No on_frame until resumed: the peer is held back. Its pings go unanswered meanwhile: for
    // shorter than its patience.
    void pause_reading();
    void resume_reading();

    // Sends what is queued, then closes; no callback any more.
    void finish();
    // Does the same after an error frame with this line.
    void refuse(const Cause& line);
    bool closed() const { return !stream_; }
    // Returns the identity that the other end has proven; null: none.
    const trust::Peer* peer() const { return transport_->peer(); }
    int fd() const { return stream_.fd(); }

  private:
    Channel(Loop& loop, ChannelHandlers handlers, ChannelOptions options,
            std::unique_ptr<Transport> transport);
    Status may_send(FrameType type, size_t body_bytes);
    Result<size_t> send_now(ByteView bytes);
    Result<size_t> send_sealed(ByteView bytes);
    void handshake_ended(const Status& status);
    void data(ByteView wire);
    void decode(ByteView clear);
    void take(const Frame& frame);
    void peer_ended();
    void end(const Error& error);
    void end_telling(const Error& error);
    void watch_silence(Nanos at);
    bool stalls(Nanos now);

    Loop& loop_;
    std::shared_ptr<ChannelHandlers> handlers_;
    ChannelOptions options_;
    std::unique_ptr<Transport> transport_;
    FrameDecoder decoder_;
    std::shared_ptr<std::function<void(ByteView)>> raw_;
    souk::Stream stream_;  // wire::Stream names a job's stdout or stderr
    Timer first_frame_timer_, keepalive_timer_, resume_timer_;
    bool opened_ = false;
    bool paused_ = false;
    Bytes held_;               // clear bytes that were not decoded yet when reading was paused
    Nanos heard_;              // when anything came last
    unsigned unanswered_ = 0;  // pings since
    // bytes to the stream in all; by the peer, when that was looked at last
    uint64_t given_ = 0, taken_ = 0;
    Nanos took_;            // when that had grown
    unsigned stalls_ = 0;   // looks since
    bool* gone_ = nullptr;  // set true by the destructor, for the callback on the stack
};

// One line for a peer that gets no channel: an error frame, as far as the socket takes it at once.
void send_last_word(int socket, const Cause& line);

}  // namespace souk::wire
