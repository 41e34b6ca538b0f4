// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/bulk_sender.hpp"

#include <poll.h>

namespace souk {
namespace {
constexpr Nanos connect_limit = Nanos::from_s(5), stall_limit = Nanos::from_s(20),
                last_words_limit = Nanos::from_ms(200);
constexpr size_t slice_bytes = 1 << 20;
}  // namespace

BulkSender::BulkSender(Loop& loop, const BulkIdentity& own, const Peer& dest, Handlers handlers)
    : loop_(loop),
      handlers_(std::make_shared<const Handlers>(std::move(handlers))),
      own_(own),
      dest_(dest) {
    // The owner is in the middle of its own step: a failure is told after it.
    if (auto begun = connect(); !begun)
        again_ = loop_.after(Nanos{}, [this, why = begun.error().message] { end(why); });
}

Status BulkSender::connect() {
    TRY_ASSIGN(connecting_, own_.ways->connect(dest_, connect_limit, [this](Result<Fd> socket) {
        connected(std::move(socket));
    }));
    return {};
}

// Somebody else may have the destination's address in this network: then the way by its gateway is
// tried, as nothing has been said yet.
void BulkSender::broke(const std::string& why) {
    if (channel_->peer() || heard_ || !own_.ways->failed(dest_, by_gateway_)) return end(why);
    stall_.cancel();
    writable_.close();
    again_ = loop_.after(Nanos{}, [this] {
        channel_.reset();
        if (const Status begun = connect(); !begun) end(begun.error().message);
    });
}

// The owner drops this object, and with it perhaps where `why` stands.
void BulkSender::end(const std::string& why) {
    const auto handlers = handlers_;
    handlers->ended(std::string(why));
}

void BulkSender::expect(const char* otherwise) {
    stall_ = loop_.after(stall_limit, [this, otherwise] { end(otherwise); });
}

void BulkSender::begin(wire::FrameType first, std::string body) {
    if (channel_) (void)channel_->send(first, body);
    first_ = {first, std::move(body)};
}

void BulkSender::connected(Result<Fd> socket) {
    by_gateway_ = connecting_.is_by_gateway();
    connecting_.close();
    if (!socket) return end(socket.error().message);
    (void)set_no_delay(socket->get());
    wire::ChannelHandlers handlers;
    handlers.on_frame = [this](const wire::Frame& f) {
        heard_ = true;
        const auto kept = handlers_;
        kept->frame(f);
    };
    handlers.on_closed = [this](const Error& e) { broke(e.message); };
    wire::ChannelOptions options;
    options.words = wire::agent_words;
    options.side = wire::Side::connector;
    auto channel = wire::Channel::open(loop_, std::move(*socket), std::move(handlers), options,
                                       wire::connector(own_.tls, trust::node_roles, dest_.node));
    if (!channel) return end(channel.error().message);
    channel_ = std::move(*channel);
    wire::Hello hello;
    hello.role = wire::Role::image;
    hello.node = own_.node;
    hello.address = own_.address;
    (void)channel_->send(wire::frame::hello, wire::pack(hello));
    if (first_) (void)channel_->send(first_->first, first_->second);
    expect("the destination does not answer");
}

void BulkSender::pump() {
    if (const Status pumped = pump_some(); !pumped) end(pumped.error().message);
}

// One slice: what the connection takes now, up to a bound; the rest when it is writable, or when
// others had their turn.
Status BulkSender::pump_some() {
    expect("the destination takes no more of what is sent");
    for (size_t slice = 0; slice < slice_bytes;) {
        TRY_ASSIGN(std::string_view piece, handlers_->piece());
        if (piece.empty()) {
            writable_.close();
            handlers_->idle();
            return {};
        }
        if (const Nanos wait = handlers_->hold ? handlers_->hold(piece) : Nanos{}; wait.ns > 0) {
            if (writable_) writable_.set_events(0);
            again_ = loop_.after(wait, [this] { pump(); });
            return {};
        }
        const auto taken =
            channel_->send_raw({reinterpret_cast<const uint8_t*>(piece.data()), piece.size()});
        if (!taken) return hear_last_words(taken.error().message), Status{};
        const size_t sent = *taken;
        if (sent == 0) {
            if (writable_) return writable_.set_events(POLLOUT), Status{};
            TRY_ASSIGN(writable_, loop_.watch(channel_->fd(), POLLOUT, [this](short) { pump(); }));
            return {};
        }
        handlers_->sent(sent);
        slice += sent;
    }
    if (writable_) writable_.set_events(0);
    pump_soon();
    return {};
}

// It takes no more, and why it does may stand in what it sent before.
void BulkSender::hear_last_words(const std::string& otherwise) {
    writable_.close();
    again_.cancel();
    stall_ = loop_.after(last_words_limit, [this, otherwise] { end(otherwise); });
}

void BulkSender::pump_soon() {
    again_ = loop_.after(Nanos{}, [this] { pump(); });
}

std::string BulkSender::refusal(const wire::Frame& f) {
    if (f.type != wire::frame::error_text) return "an unexpected frame";
    const auto text = wire::unpack<wire::ErrorText>(f.body);
    return text ? text->text : text.error().message;
}

}  // namespace souk
