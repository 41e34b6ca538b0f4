// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/talk.hpp"

#include <memory>
#include <optional>

#include "kernel/sys/loop/loop.hpp"
#include "kernel/sys/net/socket.hpp"
#include "kernel/wire/codec.hpp"

namespace souk::tools {
namespace {

constexpr Nanos connect_limit = Nanos::from_s(10);

class Talking {
  public:
    Talking(Loop& loop, wire::Tls& tls, const Talk& what, const OnFrame& on_frame)
        : loop_(loop), tls_(tls), what_(what), on_frame_(on_frame) {}

    Status run() {
        TRY_ASSIGN(const Address address, Address::resolve(what_.address));
        TRY_ASSIGN(connecting_, loop_.connect(address, connect_limit, [this](Result<Fd> socket) {
            if (const Status done = connected(std::move(socket)); !done) end(done);
        }));
        TRY(loop_.run_until([&] { return outcome_.has_value(); }, what_.limit));
        if (!outcome_) return fail("no answer from " + what_.address);
        return *outcome_;
    }

  private:
    Status connected(Result<Fd> socket) {
        if (!socket) return tl::unexpected(socket.error());
        wire::ChannelHandlers handlers;
        handlers.on_frame = [this](const wire::Frame& f) {
            if (const auto taken = frame(f); !taken)
                end(tl::unexpected(taken.error()));
            else if (*taken)
                end({});
        };
        handlers.on_closed = [this](const Error& e) { end(tl::unexpected(e)); };
        wire::ChannelOptions options;
        options.words = what_.words;
        options.side = wire::Side::connector;
        options.keepalive = what_.keepalive;
        TRY_ASSIGN(channel_,
                   wire::Channel::open(loop_, std::move(*socket), std::move(handlers), options,
                                       tls_.connector(trust::only(what_.role), what_.name)));
        return channel_->send(wire::frame::hello, wire::pack(what_.hello));
    }

    Result<bool> frame(const wire::Frame& f) {
        if (f.type != wire::frame::error_text) return on_frame_(*channel_, f);
        TRY_ASSIGN(const auto text, wire::unpack<wire::ErrorText>(f.body));
        return fail(text.text.code, what_.says + text.text);
    }

    void end(const Status& outcome) {
        if (!outcome_) outcome_ = outcome;
    }

    Loop& loop_;
    wire::Tls& tls_;
    const Talk& what_;
    const OnFrame& on_frame_;
    Connect connecting_;
    std::unique_ptr<wire::Channel> channel_;
    std::optional<Status> outcome_;
};

}  // namespace

Status talk(wire::Tls& tls, const Talk& what, const OnFrame& on_frame) {
    TRY_ASSIGN(Loop loop, Loop::open());
    return Talking(loop, tls, what, on_frame).run();
}

}  // namespace souk::tools
