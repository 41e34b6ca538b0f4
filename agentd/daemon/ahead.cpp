// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/ahead.hpp"

#include <poll.h>

#include "checkpoint/ahead_source.hpp"

namespace souk {
namespace {
constexpr Nanos connect_limit = Nanos::from_s(5), stall_limit = Nanos::from_s(20);
constexpr Nanos round_limit = Nanos::from_s(240);
constexpr size_t slice_bytes = 1 << 20;
}  // namespace

AheadLinks::AheadLinks(Loop& loop, NodeName node, std::string address, Handlers handlers)
    : loop_(loop), node_(std::move(node)), address_(std::move(address)), handlers_(std::move(handlers)) {}

// ------------------------------------------------------------------------------------------------------- source

void AheadLinks::open(const GuestKey& from, const GuestKey& to, const Peer& dest, uint64_t bytes) {
    Sending& s = sending_[from] = Sending{};
    s.to = to;
    s.bytes = bytes;
    const auto begin = [&]() -> Status {
        TRY_ASSIGN(const Address address, Address::parse(dest.address));
        TRY_ASSIGN(s.connecting, loop_.connect(address, connect_limit, [this, from](Result<Fd> socket) {
            connected(from, std::move(socket));
        }));
        return {};
    };
    // The caller is in the middle of its own step: a failure is told after it.
    if (auto begun = begin(); !begun) loop_.defer([this, from, why = begun.error().message] { end(from, why); });
}

void AheadLinks::connected(const GuestKey& from, Result<Fd> socket) {
    const auto it = sending_.find(from);
    if (it == sending_.end()) return;
    if (!socket) return end(from, socket.error().message);
    (void)set_no_delay(socket->get());
    wire::ChannelHandlers handlers;
    handlers.on_frame = [this, from](const wire::Frame& f) { heard(from, f); };
    handlers.on_closed = [this, from](const Error& e) { end(from, e.message); };
    wire::ChannelOptions options;
    options.side = wire::Side::connector;
    auto channel = wire::Channel::open(loop_, std::move(*socket), std::move(handlers), options);
    if (!channel) return end(from, channel.error().message);
    Sending& s = it->second;
    s.channel = std::move(*channel);
    wire::Hello hello;
    hello.role = wire::Role::image;
    hello.node = node_;
    hello.address = address_;
    (void)s.channel->send(wire::FrameType::hello, wire::pack(hello));
    (void)s.channel->send(wire::FrameType::ahead_begin,
                          wire::pack(wire::AheadBegin{s.to.id, s.to.epoch, node_, s.bytes}));
    s.stall = loop_.after(stall_limit, [this, from] { end(from, "the destination does not answer"); });
}

// An older agentd refuses the frame that it does not know, with an error.
void AheadLinks::heard(const GuestKey& from, const wire::Frame& f) {
    const auto it = sending_.find(from);
    if (it == sending_.end() || f.type == wire::FrameType::welcome) return;
    if (f.type == wire::FrameType::image_result) {
        const auto result = wire::unpack<wire::ImageResult>(f.body);
        return end(from, result ? result->why : result.error().message);
    }
    if (f.type != wire::FrameType::pages_state) {
        const auto text = f.type == wire::FrameType::error ? wire::unpack<wire::ErrorText>(f.body)
                                                           : Result<wire::ErrorText>(fail("an unexpected frame"));
        return end(from, text ? text->text : text.error().message);
    }
    const auto state = wire::unpack<wire::PagesState>(f.body);
    if (!state) return end(from, state.error().message);
    Sending& s = it->second;
    if (s.source && state->put != s.source->bytes_sent())
        return end(from, "the destination has not taken what was sent");
    if (!s.source && s.accepted) return end(from, "the destination acknowledges what was not sent");
    s.accepted = true;
    s.source = nullptr;
    s.stall.cancel();
    s.limit.cancel();
    handlers_.round(from);
}

void AheadLinks::send(const GuestKey& from, AheadSource& source) {
    const auto it = sending_.find(from);
    if (it == sending_.end()) return;
    it->second.source = &source;
    it->second.limit = loop_.after(round_limit, [this, from] { end(from, "a round took too long"); });
    it->second.again = loop_.after(Nanos{}, [this, from] { pump(from); });
}

// One slice: what the connection takes now, up to a bound; the rest when it is writable, or when others had their turn.
void AheadLinks::pump(const GuestKey& from) {
    const auto it = sending_.find(from);
    if (it == sending_.end() || !it->second.source) return;
    if (const Status pumped = pump_some(from, it->second); !pumped) end(from, pumped.error().message);
}

Status AheadLinks::pump_some(const GuestKey& from, Sending& s) {
    s.stall = loop_.after(stall_limit, [this, from] { end(from, "the destination takes no more memory"); });
    for (size_t slice = 0; slice < slice_bytes;) {
        TRY_ASSIGN(const std::string_view piece, s.source->piece());
        if (piece.empty()) return s.writable.close(), Status{};  // the next word is the destination's
        TRY_ASSIGN(const size_t sent,
                   s.channel->send_raw({reinterpret_cast<const uint8_t*>(piece.data()), piece.size()}));
        if (sent == 0) {
            if (s.writable) return s.writable.set_events(POLLOUT), Status{};
            TRY_ASSIGN(s.writable, loop_.watch(s.channel->fd(), POLLOUT, [this, from](short) { pump(from); }));
            return {};
        }
        s.source->sent(sent);
        slice += sent;
    }
    if (s.writable) s.writable.set_events(0);
    s.again = loop_.after(Nanos{}, [this, from] { pump(from); });
    return {};
}

void AheadLinks::end(const GuestKey& from, const std::string& why) {
    const auto it = sending_.find(from);
    if (it == sending_.end()) return;
    const bool accepted = it->second.accepted;
    sending_.erase(it);
    (accepted ? handlers_.broken : handlers_.refused)(from, why);
}

// -------------------------------------------------------------------------------------------------- destination

Status AheadLinks::frame(uint64_t connection, const NodeName& sender, const wire::Frame& f) {
    TRY_ASSIGN(const wire::AheadBegin begin, wire::unpack<wire::AheadBegin>(f.body));
    const GuestKey key{begin.id, begin.new_epoch};
    if (begin.sender != sender) return fail("memory of another sender");
    if (receiving_.contains(connection)) return fail("memory of one job a connection");
    for (const auto& [number, r] : receiving_)
        if (r.key == key) return fail("its memory comes already");
    if (auto may = handlers_.begin(key, begin.bytes); !may) {
        loop_.defer([this, connection, key, why = may.error().message] {
            handlers_.answer(connection, {key.id, key.epoch, false, why});
        });
        return {};
    }
    Receiving& r = receiving_[connection];
    r.key = key;
    r.sections = std::make_unique<PageSections>([this, connection](const PageRange& range, std::string_view bytes) {
        return section(connection, range, bytes);
    });
    handlers_.receive_raw(connection, [this, connection](ByteView bytes) { receive(connection, bytes); });
    handlers_.state(connection, {});
    return {};
}

Status AheadLinks::section(uint64_t connection, const PageRange& range, std::string_view bytes) {
    Receiving& r = receiving_.at(connection);
    if (range.pages == 0) {
        handlers_.state(connection, {r.taken, false, {}});
        return {};
    }
    r.taken += bytes.size();
    return handlers_.take(r.key, range, bytes);
}

// How long it may be silent is the home's patience: between two rounds nothing comes.
void AheadLinks::receive(uint64_t connection, ByteView bytes) {
    const auto it = receiving_.find(connection);
    if (it == receiving_.end() || it->second.failed) return;
    const auto taken = it->second.sections->take({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    if (taken) return;
    it->second.failed = true;  // not here and now: its own bytes may be on the stack
    loop_.defer([this, connection, key = it->second.key, why = taken.error().message] {
        handlers_.answer(connection, {key.id, key.epoch, false, why});
        closed(connection);
    });
}

void AheadLinks::closed(uint64_t connection) {
    const auto it = receiving_.find(connection);
    if (it == receiving_.end()) return;
    const GuestKey key = it->second.key;
    receiving_.erase(it);
    handlers_.lost(key);
}

}  // namespace souk
