// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/wire/channel.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "kernel/base/check.hpp"
#include "kernel/wire/codec.hpp"

namespace souk::wire {
namespace {

class PlainTransport final : public Transport {
  public:
    Result<ByteView> open(ByteView wire, Bytes&) override { return wire; }
    Result<Bytes> seal(Bytes&& clear) override { return std::move(clear); }
    bool passes_through() const override { return true; }
};

constexpr unsigned pings_max = 3;  // unanswered
constexpr size_t bulk_bytes = 256 * 1024;
constexpr size_t sealed_bytes = 128 * 1024;  // at one time: stays in a core's cache

}  // namespace

std::unique_ptr<Transport> plain_transport() { return std::make_unique<PlainTransport>(); }

Channel::Channel(Loop& loop, ChannelHandlers handlers, ChannelOptions options,
                 std::unique_ptr<Transport> transport)
    : loop_(loop),
      handlers_(std::make_shared<ChannelHandlers>(std::move(handlers))),
      options_(options),
      transport_(std::move(transport)),
      decoder_(options.words, options.side) {
    MUST(options_.words && handlers_->on_frame && handlers_->on_closed);
}

Result<std::unique_ptr<Channel>> Channel::open(Loop& loop, Fd socket, ChannelHandlers handlers,
                                               ChannelOptions options,
                                               std::unique_ptr<Transport> transport) {
    std::unique_ptr<Channel> channel(
        new Channel(loop, std::move(handlers), options, std::move(transport)));
    Channel* self = channel.get();
    StreamHandlers stream{[self](ByteView wire) { self->data(wire); },
                          [self] { self->peer_ended(); },
                          [self](const Error& error) { self->end(error); },
                          [self] {
                              const auto held = self->handlers_;
                              if (held->on_drain) held->on_drain();
                          }};
    TRY_ASSIGN(channel->stream_,
               loop.stream(std::move(socket), std::move(stream),
                           {.send_queue_bytes_max = options.send_queue_bytes_max}));
    channel->heard_ = Loop::now();
    channel->first_frame_timer_ = loop.after(options.first_frame_limit, [self] {
        self->end(Error{ETIMEDOUT, self->transport_->awaits()});
    });
    if (options.keepalive > Nanos{0}) channel->watch_silence(channel->heard_ + options.keepalive);
    if (channel->transport_->begin(channel->fd(),
                                   [self](const Status& s) { self->handshake_ended(s); }))
        channel->stream_.pause_reading();
    return channel;
}

void Channel::handshake_ended(const Status& status) {
    if (closed()) return;
    if (!status) return end(status.error());
    auto kept = transport_->seal({});
    if (!kept) return end(kept.error());
    given_ += kept->size();
    if (!kept->empty())
        if (const Status sent = stream_.send(std::move(*kept)); !sent) return end(sent.error());
    if (!paused_) stream_.resume_reading();
}

Channel::~Channel() {
    if (gone_ != nullptr) *gone_ = true;
}

// ---- sending

size_t Channel::room() const {
    if (closed()) return 0;
    const size_t taken =
        stream_.queued() + frame_header_bytes + transport_->overhead(options_.send_queue_bytes_max);
    return taken >= options_.send_queue_bytes_max ? 0 : options_.send_queue_bytes_max - taken;
}

Status Channel::may_send(FrameType type, size_t body_bytes) {
    if (closed()) return fail("the connection is closed");
    if (body_bytes > options_.words(type))
        return fail("a message of " + std::to_string(body_bytes) +
                    " bytes is longer than its type may be");
    const size_t bytes = frame_header_bytes + body_bytes;
    return stream_.may_send(bytes + transport_->overhead(bytes));
}

Status Channel::send(FrameType type, std::string_view body) {
    TRY(may_send(type, body.size()));
    TRY_ASSIGN(Bytes wire, transport_->seal(encode_frame(options_.words, type, body)));
    given_ += wire.size();
    return stream_.send(std::move(wire));
}

Result<size_t> Channel::send_raw(ByteView bytes) {
    if (closed()) return fail("the connection is closed");
    if (!transport_->passes_through()) return send_sealed(bytes);
    MUST(stream_.queued() == 0);
    return send_now(bytes);
}

// Sends what the socket takes at once.
Result<size_t> Channel::send_now(ByteView bytes) {
    const ssize_t n = ::send(fd(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n >= 0) return static_cast<size_t>(n);
    if (errno == EAGAIN || errno == EINTR) return 0;
    return fail_errno("send", errno);
}

// Sealed bytes must leave in their order. Those that the socket does not take wait in the stream,
// and no more is sealed before they are gone.
Result<size_t> Channel::send_sealed(ByteView bytes) {
    if (stream_.queued() > 0) return 0;
    const ByteView part = bytes.first(std::min(bytes.size(), sealed_bytes));
    TRY_ASSIGN(Bytes wire, transport_->seal(Bytes(part.begin(), part.end())));
    TRY_ASSIGN(const size_t sent, send_now(wire));
    if (sent < wire.size()) TRY(stream_.send(ByteView(wire).subspan(sent)));
    return part.size();
}

// ---- receiving

void Channel::data(ByteView wire) {
    heard_ = Loop::now();
    unanswered_ = 0;
    Bytes reply;
    const auto clear = transport_->open(wire, reply);
    given_ += reply.size();
    const Status sent = reply.empty() ? Status{} : stream_.send(std::move(reply));
    if (!clear) return end(clear.error());
    if (!sent) return end(sent.error());
    decode(*clear);
}

// Hands out every whole frame, unless a callback closes, pauses or destroys the channel.
void Channel::decode(ByteView clear) {
    MUST(gone_ == nullptr && held_.empty());
    bool gone = false;
    gone_ = &gone;
    while (!clear.empty()) {
        if (const auto raw = raw_) {  // lives through the call
            gone_ = nullptr;
            return (*raw)(clear);
        }
        const auto frame = decoder_.next(clear);
        if (!frame) {
            gone_ = nullptr;
            return end_telling(frame.error());
        }
        if (!*frame) {
            const Status kept = handlers_->may_keep ? handlers_->may_keep() : Status{};
            if (kept) break;
            gone_ = nullptr;
            return end_telling(kept.error());
        }
        take(**frame);
        if (gone) return;
        if (closed()) break;
        if (paused_) {
            held_.assign(clear.begin(), clear.end());
            break;
        }
    }
    gone_ = nullptr;
}

void Channel::take(const Frame& frame) {
    if (!std::exchange(opened_, true)) first_frame_timer_.cancel();
    if (frame.type == frame_pong) return;
    if (frame.type == frame_ping) {
        // refused by a full queue: that peer does not read anyway
        (void)send(frame_pong, std::string_view());
        return;
    }
    // lives through the call, whatever the callback does to the channel
    const auto handlers = handlers_;
    handlers->on_frame(frame);
}

void Channel::pause_reading() {
    if (closed() || paused_) return;
    paused_ = true;
    resume_timer_.cancel();
    stream_.pause_reading();
}

void Channel::receive_raw(std::function<void(ByteView)> on_bytes) {
    raw_ = std::make_shared<std::function<void(ByteView)>>(std::move(on_bytes));
    keepalive_timer_.cancel();
    stream_.expect_bulk(bulk_bytes);
}

// Resumes later, and not at once, because the caller may be on_frame itself.
void Channel::resume_reading() {
    if (closed() || !paused_ || resume_timer_.waiting()) return;
    resume_timer_ = loop_.after(Nanos{0}, [this] {
        paused_ = false;
        heard_ = Loop::now();
        const Bytes held = std::exchange(held_, {});
        stream_.resume_reading();
        decode(held);
    });
}

// ---- the end

void Channel::peer_ended() {
    end(Error{0, decoder_.between_frames()
                     ? "the peer closed the connection"
                     : "the peer closed the connection in the middle of a message"});
}

void Channel::finish() {
    first_frame_timer_.cancel();
    keepalive_timer_.cancel();
    resume_timer_.cancel();
    stream_.close_after_send(options_.linger);
}

void Channel::refuse(const Cause& line) {
    (void)send(frame::error_text, pack(ErrorText{line}));  // closing is what counts
    finish();
}

void send_last_word(int socket, const Cause& line) {
    const std::string body = pack(ErrorText{line});
    const auto header = frame_header(common_words, frame::error_text, body.size());
    std::string frame(reinterpret_cast<const char*>(header.data()), header.size());
    frame += body;
    // whoever reads it knows; closing is what counts
    (void)!::send(socket, frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

void Channel::end(const Error& error) {
    finish();
    const auto handlers = handlers_;
    handlers->on_closed(error);  // may destroy this
}

void Channel::end_telling(const Error& error) {
    const Error copy = error;
    (void)send(frame::error_text, pack(ErrorText{copy}));
    end(copy);
}

// We count looks that are a keepalive apart instead of time alone, as with pings: this machine may
// have slept.
bool Channel::stalls(Nanos now) {
    const uint64_t taken = given_ - stream_.queued();
    if (stream_.queued() == 0 || taken != taken_ || took_ == Nanos{}) {
        taken_ = taken;
        took_ = now;
        stalls_ = 0;
        return false;
    }
    if (now >= took_ + Nanos{options_.keepalive.ns * (stalls_ + 1)}) ++stalls_;
    return stalls_ > pings_max;
}

void Channel::watch_silence(Nanos at) {
    keepalive_timer_ = loop_.at(at, [this] {
        const Nanos now = Loop::now();
        if (paused_) heard_ = now;  // not listening is no silence
        const Nanos silent = now - heard_;
        if (silent >= options_.keepalive) {
            // We count pings and not time alone, so that after a sleep of this machine the peer
            // gets its chance to answer.
            if (unanswered_ == pings_max)
                return end(Error{ETIMEDOUT, "the peer has been silent for " +
                                                std::to_string(silent.ns / 1'000'000'000) + " s"});
            ++unanswered_;
            (void)send(frame_ping, std::string_view());
        }
        if (stalls(now))
            return end(Error{ETIMEDOUT, "the peer has read nothing for " +
                                            std::to_string((now - took_).ns / 1'000'000'000) +
                                            " s, and " + std::to_string(stream_.queued()) +
                                            " bytes wait for it"});
        watch_silence((silent >= options_.keepalive ? now : heard_) + options_.keepalive);
    });
}

}  // namespace souk::wire
