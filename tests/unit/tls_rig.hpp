// SPDX-License-Identifier: GPL-2.0-or-later
// Certificates of a market of the test's own, two channels that greet each other, and bulk data
// from one to the other.
#pragma once

#include <string>
#include <vector>

#include "kernel/sys/host/clock.hpp"
#include "kernel/wire/channel.hpp"
#include "kernel/wire/tls.hpp"
#include "market/wire/codec.hpp"
#include "tests/unit/loop_fixture.hpp"

namespace souk::unit {

using namespace souk::wire;

struct Ca {
    trust::Authority root = *trust::make_root("m", unix_now()),
                     issuing = *trust::make_issuing(root, "m", unix_now());
    trust::Identity identity(const trust::Subject& subject, Nanos now = unix_now(),
                             trust::Revocations revoked = {}) const {
        const trust::Key key = *trust::Key::make();
        return {key,
                {*trust::issue(issuing, key, subject, now), issuing.certificate},
                root.certificate,
                std::move(revoked)};
    }
    trust::Identity node(const std::string& name, Nanos now = unix_now()) const {
        return identity({name, trust::node_roles}, now);
    }
};

inline std::unique_ptr<Tls> tls_of(trust::Identity identity, Tls::Options options = {}) {
    auto tls = Tls::open(std::move(identity), options);
    OK(tls);
    return std::move(*tls);
}

struct End {
    std::unique_ptr<Channel> channel;
    std::vector<std::string> frames;
    std::string closed;
    void open(Loop& loop, Fd fd, Side side, std::unique_ptr<Transport> transport,
              ChannelOptions options = {}) {
        options.words = market_words;
        options.side = side;
        ChannelHandlers handlers;
        handlers.on_frame = [this](const Frame& f) { frames.emplace_back(f.body); };
        handlers.on_closed = [this](const Error& e) { closed = e.message; };
        auto opened =
            Channel::open(loop, std::move(fd), std::move(handlers), options, std::move(transport));
        OK(opened);
        channel = std::move(*opened);
    }
};

// 20 MB past frames and queue, in pieces as the connection takes them: it comes as it was.
inline void bulk_comes_whole(Loop& loop, Channel& from, Channel& to) {
    const std::string all = pattern(20'000'000, 9);
    std::string came;
    to.receive_raw([&](ByteView bytes) { came += text_of(bytes); });
    size_t sent = 0;
    UNTIL(loop, [&] {
        while (sent < all.size()) {
            const auto taken =
                from.send_raw(bytes_of(std::string_view(all).substr(sent, 1'000'000)));
            OK(taken);
            if (*taken == 0) break;
            sent += *taken;
        }
        return came.size() == all.size();
    }());
    ck_assert(came == all);
}

struct TlsPair {
    Loop loop = open_loop();
    End server, client;
    TlsPair(std::unique_ptr<Transport> accepts, std::unique_ptr<Transport> connects) {
        auto [a, b] = pair_of_sockets();
        server.open(loop, std::move(a), Side::acceptor, std::move(accepts));
        client.open(loop, std::move(b), Side::connector, std::move(connects));
        (void)client.channel->send(frame::hello, "h");
    }
    // Waits until the connection has failed, and checks the reason that either end states.
    void fails(std::string_view server_says, std::string_view client_says) {
        UNTIL(loop, !server.closed.empty() && !client.closed.empty());
        const auto says = [](const std::string& text, std::string_view part) {
            ck_assert_msg(text.find(part) != std::string::npos, "'%s' does not say '%s'",
                          text.c_str(), std::string(part).c_str());
        };
        says(server.closed, server_says);
        says(client.closed, client_says);
        ck_assert(server.frames.empty() && client.frames.empty());
    }
};

}  // namespace souk::unit
