// SPDX-License-Identifier: GPL-2.0-or-later
// Two sockets as one, and how a node connects by its gateway. Method: socket pairs whose far ends
// the test holds, with random pieces; and gateways that the test plays itself, of which some do
// what they should not.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agentd/core/gateway_pass.hpp"
#include "agentd/daemon/relay.hpp"
#include "agentd/daemon/ways.hpp"
#include "kernel/base/node_address.hpp"
#include "kernel/base/rng.hpp"
#include "tests/unit/loop_fixture.hpp"

using namespace souk;
using souk::unit::limit;
using souk::unit::open_loop;

namespace {

std::string some(Rng& rng, size_t count) {
    std::string text(count, '\0');
    for (char& c : text) c = static_cast<char>(rng.below(256));
    return text;
}

// One end of each pair is the relay's, the other the test's.
struct Pair {
    Loop loop = open_loop();
    Bytes buffer;
    Fd near[2];
    bool ended = false;
    std::unique_ptr<Relay> relay;

    Pair() {
        Fd far[2];
        for (int i = 0; i < 2; ++i) {
            auto both = socket_pair();
            OK(both);
            near[i] = std::move(both->first);
            far[i] = std::move(both->second);
        }
        relay = std::make_unique<Relay>(loop, buffer, std::move(far[0]), std::move(far[1]),
                                        [this] { ended = true; });
        OK(relay->begin());
    }
    void until(const std::function<bool()>& done) { UNTIL_PEER(loop, done()); }
    size_t say(int end, std::string_view bytes) const {
        const ssize_t n =
            ::send(near[end].get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        return n < 0 ? 0 : static_cast<size_t>(n);
    }
    // The bytes that are there; "end": the other end says no more.
    std::string hear(int end, size_t count = 1 << 16) const {
        std::string bytes(count, '\0');
        const ssize_t n = ::recv(near[end].get(), bytes.data(), count, MSG_DONTWAIT);
        if (n == 0) return "end";
        bytes.resize(n < 0 ? 0 : static_cast<size_t>(n));
        return bytes;
    }
};

}  // namespace

START_TEST(all_bytes_arrive_both_ways_in_their_order) {
    Pair pair;
    Rng rng(7);
    const std::string whole[2] = {some(rng, 3 << 20), some(rng, 3 << 20)};
    size_t said[2] = {0, 0};
    std::string heard[2];
    pair.until([&] {
        for (int i = 0; i < 2; ++i) {
            const std::string_view rest = std::string_view(whole[i]).substr(said[i]);
            said[i] += pair.say(i, rest.substr(0, rng.below(200'000)));
            if (rng.chance(0.7)) heard[i] += pair.hear(i, 1 + rng.below(100'000));
        }
        return heard[0].size() == whole[1].size() && heard[1].size() == whole[0].size();
    });
    ck_assert(heard[0] == whole[1] && heard[1] == whole[0]);
    ck_assert_uint_eq(pair.relay->bytes(), 6 << 20);
}
END_TEST

START_TEST(who_does_not_read_holds_the_other_end_back) {
    Pair pair;
    const std::string piece(1 << 16, 'x');
    size_t said = 0;
    int full = 0;
    pair.until([&] {
        const size_t n = pair.say(0, piece);
        said += n;
        full = n == 0 ? full + 1 : 0;
        return full > 50;
    });
    // what lies in the relay and in two sockets
    ck_assert(said < Relay::buffer_bytes + (4 << 20));
    ck_assert_uint_eq(pair.say(1, "back"), 4);  // the other way is open
    pair.until([&] { return pair.hear(0) == "back"; });
    size_t heard = 0;
    pair.until([&] {
        heard += pair.hear(1).size();
        return heard == said;
    });
    ck_assert(!pair.ended);
}
END_TEST

START_TEST(an_end_that_says_no_more_still_hears) {
    Pair pair;
    ck_assert_uint_eq(pair.say(0, "last words"), 10);
    ::shutdown(pair.near[0].get(), SHUT_WR);
    pair.until([&] { return pair.hear(1) == "last words"; });
    pair.until([&] { return pair.hear(1) == "end"; });
    ck_assert(!pair.ended);
    ck_assert_uint_eq(pair.say(1, "answer"), 6);
    pair.until([&] { return pair.hear(0) == "answer"; });
    ::shutdown(pair.near[1].get(), SHUT_WR);
    pair.until([&] { return pair.ended; });
    ck_assert(pair.hear(0) == "end");
}
END_TEST

START_TEST(a_relay_ends_when_an_end_breaks) {
    Pair pair;
    ck_assert_uint_eq(pair.say(1, "nobody reads this"), 17);
    pair.until([&] { return pair.relay->bytes() == 17; });
    pair.near[0] = Fd();
    pair.until([&] {
        (void)pair.say(1, "x");
        return pair.ended;
    });
}
END_TEST

namespace {

Log no_log() { return Log({.level_max = Level::error, .program = "test_relay"}); }

// A gateway, or somebody else at its address, as the test wishes.
struct Played {
    Loop loop = open_loop();
    Log log = no_log();
    std::string address;
    Listener listener;
    std::vector<std::unique_ptr<wire::Channel>> channels;
    std::vector<Fd> waiting;  // for their first bytes
    std::vector<Watch> watches;
    std::vector<Fd> raw;  // connections that begin with a pass
    std::vector<std::string> preambles;
    std::string answers = std::string(gateway_pass_digits, 'a');  // empty: it says nothing
    std::string why;                                              // it refuses
    std::vector<wire::GatewayAsk> asked;
    int offers = 0;
    GatewayLinks links{loop, log, nullptr, "n1", "", [](Fd) {}};
    Ways ways{loop, &links};

    Played() {
        auto socket = listen_stream(*Address::parse("127.0.0.1:0"));
        OK(socket);
        address = Address::local(socket->get())->text();
        listener = std::move(
            *loop.listen(std::move(*socket), [this](Fd fd) { accepted(std::move(fd)); }, {}));
    }
    void accepted(Fd fd) {
        const size_t number = waiting.size();
        waiting.push_back(std::move(fd));
        watches.push_back(
            std::move(*loop.watch(waiting[number].get(), POLLIN, [this, number](short) {
                watches[number].close();
                begins(std::move(waiting[number]));
            })));
    }
    void begins(Fd fd) {
        std::string first(gateway_preamble_bytes, '\0');
        const ssize_t n = ::recv(fd.get(), first.data(), first.size(), MSG_PEEK);
        if (const auto pass = pass_of(first.substr(0, n > 0 ? static_cast<size_t>(n) : 0))) {
            (void)::recv(fd.get(), first.data(), first.size(), 0);
            preambles.push_back(*pass);
            raw.push_back(std::move(fd));
            return;
        }
        wire::ChannelHandlers handlers;
        const size_t number = channels.size();
        handlers.on_frame = [this, number](const wire::Frame& f) { frame(*channels[number], f); };
        handlers.on_closed = [](const Error&) {};
        wire::ChannelOptions options;
        options.words = wire::agent_words;
        channels.push_back(
            std::move(*wire::Channel::open(loop, std::move(fd), std::move(handlers), options)));
    }
    void frame(wire::Channel& channel, const wire::Frame& f) {
        if (f.type == wire::frame::hello)
            OK(channel.send(wire::frame::welcome,
                            wire::pack(wire::Welcome{wire::protocol_version, "gw"})));
        if (f.type == wire::frame::gateway_offer) ++offers;
        if (f.type != wire::frame::gateway_ask) return;
        asked.push_back(*wire::unpack<wire::GatewayAsk>(f.body));
        if (answers.empty() && why.empty()) return;
        OK(channel.send(
            wire::frame::gateway_answer,
            wire::pack(wire::GatewayAnswer{asked.back().number, why.empty() ? answers : "",
                                           why.empty() ? Cause() : Cause(CauseCode::away, why)})));
    }
    // An address at which nobody listens, and this gateway.
    std::string behind() const { return "127.0.0.1:1 via " + address; }
    Result<Fd> connect(const std::string& to, Nanos most = limit) {
        std::optional<Result<Fd>> got;
        auto way = ways.connect({"lab:n3", to}, most, [&](Result<Fd> fd) { got = std::move(fd); });
        OK(way);
        const auto done = loop.run_until([&] { return got.has_value(); }, limit);
        ck_assert(done && *done);
        return std::move(*got);
    }
};

}  // namespace

START_TEST(a_node_that_is_not_reached_is_reached_by_its_gateway) {
    Played played;
    auto socket = played.connect(played.behind());
    OK(socket);
    ck_assert_uint_eq(played.asked.size(), 1);
    ck_assert_text(played.asked[0].node, "n3");  // as its gateway calls it
    ck_assert(played.asked[0].onward.empty());
    const auto came = played.loop.run_until([&] { return !played.raw.empty(); }, limit);
    ck_assert(came && *came);
    ck_assert_text(played.preambles[0], played.answers);
    // The bytes behind the pass go as they are.
    ck_assert_int_eq(::send(socket->get(), "hello", 5, 0), 5);
    char text[6] = {};
    ck_assert_int_eq(::recv(played.raw[0].get(), text, 5, MSG_WAITALL), 5);
    ck_assert_text(text, "hello");
    // The gateway's connection stands, and the first way is left out.
    OK(played.connect(played.behind()));
    ck_assert_uint_eq(played.channels.size(), 1);
    ck_assert_uint_eq(played.asked.size(), 2);
}
END_TEST

START_TEST(a_node_that_is_reached_needs_no_gateway) {
    Played played;
    auto socket = listen_stream(*Address::parse("127.0.0.1:0"));
    OK(socket);
    const std::string direct = Address::local(socket->get())->text();
    OK(played.connect(direct + " via " + played.address));
    OK(played.connect(direct));
    ck_assert(played.asked.empty());
    // Somebody else has that address here, as TLS shows: of all that was begun then.
    const Peer node{"lab:n3", direct + " via " + played.address};
    ck_assert(!played.ways.failed({"lab:n3", direct}, false));
    ck_assert(played.ways.failed(node, false) && played.ways.failed(node, false));
    OK(played.connect(node.address));
    ck_assert_uint_eq(played.asked.size(), 1);
    // The gateway leads to somebody else, too: the next attempt begins anew.
    ck_assert(!played.ways.failed(node, true));
    OK(played.connect(node.address));
    ck_assert_uint_eq(played.asked.size(), 1);
}
END_TEST

START_TEST(what_a_gateway_refuses_is_said_in_its_words) {
    Played played;
    played.why = "n3 is not connected to its gateway";
    auto socket = played.connect(played.behind());
    ck_assert(!socket);
    ck_assert_text(socket.error().message, "its gateway says: " + played.why);
    for (const std::string& bad :
         {std::string("short"), std::string(gateway_pass_digits, 'x'), std::string(64, 'a')}) {
        played.why.clear();
        played.answers = bad;
        ck_assert(!played.connect(played.behind()));
    }
    ck_assert(played.preambles.empty());
    auto nowhere = played.connect("127.0.0.1:1 via 127.0.0.1:2");
    ck_assert(!nowhere);
    ck_assert(nowhere.error().message.starts_with("its gateway 127.0.0.1:2 is not reached: "));
}
END_TEST

START_TEST(an_attempt_that_is_dropped_is_told_nothing) {
    Played played;
    played.answers.clear();
    bool told = false;
    {
        auto way = played.ways.connect({"lab:n3", played.behind()}, limit,
                                       [&](const Result<Fd>&) { told = true; });
        OK(way);
        const auto asked = played.loop.run_until([&] { return !played.asked.empty(); }, limit);
        ck_assert(asked && *asked);
    }
    OK(played.channels[0]->send(
        wire::frame::gateway_answer,
        wire::pack(wire::GatewayAnswer{1, std::string(gateway_pass_digits, 'a')})));
    played.answers = std::string(gateway_pass_digits, 'b');
    OK(played.connect(played.behind()));
    UNTIL(played.loop, !played.preambles.empty());
    ck_assert(!told && played.preambles == std::vector<std::string>{played.answers});
}
END_TEST

START_TEST(a_node_asks_its_own_gateway_where_it_reaches_no_other) {
    Played played;
    GatewayLinks own(played.loop, played.log, nullptr, "n1", played.address, [](Fd) {});
    own.start();
    const auto offered = played.loop.run_until([&] { return played.offers == 1; }, limit);
    ck_assert(offered && *offered && own.is_offered());
    for (const bool onward : {true, false}) {
        std::optional<Result<Fd>> got;
        (void)own.ask("127.0.0.1:2", "uni:n3", onward, [&](Result<Fd> fd) { got = std::move(fd); });
        const auto done = played.loop.run_until([&] { return got.has_value(); }, limit);
        ck_assert(done && *done && got->has_value() == onward);
    }
    ck_assert_uint_eq(played.asked.size(), 1);
    ck_assert_text(played.asked[0].node, "uni:n3");
    ck_assert_text(played.asked[0].onward, "127.0.0.1:2");
}
END_TEST

START_TEST(a_node_that_is_called_opens_a_connection_back) {
    Played played;
    std::vector<Fd> brought;
    GatewayLinks own(played.loop, played.log, nullptr, "n1", played.address,
                     [&](Fd fd) { brought.push_back(std::move(fd)); });
    own.start();
    const auto offered = played.loop.run_until([&] { return played.offers == 1; }, limit);
    ck_assert(offered && *offered);
    for (const std::string& pass : {std::string("no pass"), std::string(gateway_pass_digits, 'c')})
        OK(played.channels[0]->send(wire::frame::gateway_call,
                                    wire::pack(wire::GatewayCall{pass})));
    const auto came = played.loop.run_until(
        [&] { return brought.size() == 1 && played.preambles.size() == 1; }, limit);
    ck_assert(came && *came);
    ck_assert_text(played.preambles[0], std::string(gateway_pass_digits, 'c'));
    // It is lost, and comes back.
    played.channels[0].reset();
    const auto again = played.loop.run_until([&] { return played.offers == 2; }, limit);
    ck_assert(again && *again);
}
END_TEST

START_TEST(an_address_has_one_gateway_or_none) {
    const auto parted = NodeAddress::parted("192.0.2.1:7071 via [2001:db8::1]:7072");
    ck_assert_text(parted.direct, "192.0.2.1:7071");
    ck_assert_text(parted.gateway, "[2001:db8::1]:7072");
    ck_assert_text(parted.text(), "192.0.2.1:7071 via [2001:db8::1]:7072");
    ck_assert(NodeAddress::parted("n1:1") == (NodeAddress{"n1:1", ""}));
    ck_assert(NodeAddress::parted("0.0.0.0:1 via g:2").is_everywhere());
    ck_assert_text(NodeAddress::parted("[::]:1 via g:2").at_host("h").text(), "h:1 via g:2");
    wire::GatewayAsk asked{1, "n1", "h:1"};
    OK(wire::unpack<wire::GatewayAsk>(wire::pack(asked)));
    for (const char* bad : {"h:1 via", "h:1 via ", " via g:1", "h:1 via g", "h via g:1",
                            "h:1 via g:1 via k:1", "h:1  via g:1", "h:1 via g:0"}) {
        asked.onward = bad;
        const auto read = wire::unpack<wire::GatewayAsk>(wire::pack(asked));
        ck_assert_msg(!read, "%s", bad);
        ck_assert_text(read.error().message,
                       "GatewayAsk: onward: not an address: host:port is wanted, or host:port via "
                       "host:port");
    }
}
END_TEST

UNIT_SUITE(relay, all_bytes_arrive_both_ways_in_their_order,
           who_does_not_read_holds_the_other_end_back, an_end_that_says_no_more_still_hears,
           a_relay_ends_when_an_end_breaks, a_node_that_is_not_reached_is_reached_by_its_gateway,
           a_node_that_is_reached_needs_no_gateway, what_a_gateway_refuses_is_said_in_its_words,
           an_attempt_that_is_dropped_is_told_nothing,
           a_node_asks_its_own_gateway_where_it_reaches_no_other,
           a_node_that_is_called_opens_a_connection_back, an_address_has_one_gateway_or_none);
