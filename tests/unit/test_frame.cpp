// SPDX-License-Identifier: GPL-2.0-or-later
// Frames: the decoder as a pure function of bytes (any split gives the same frames), and channels
// over real sockets.
#include <sys/socket.h>

#include "kernel/wire/frame.hpp"

#include <memory>
#include <tuple>
#include <vector>

#include "kernel/wire/channel.hpp"
#include "market/wire/codec.hpp"
#include "tests/unit/loop_fixture.hpp"

using namespace souk;
using namespace souk::unit;
using namespace souk::wire;

namespace {

std::string wire_of(FrameType type, std::string_view body) {
    const Bytes bytes = encode_frame(market_words, type, body);
    return std::string(text_of(bytes));
}

std::string raw_header(uint32_t bytes, unsigned type, unsigned flags) {
    std::string out;
    for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(bytes >> shift);
    out += {static_cast<char>(type), static_cast<char>(type >> 8), static_cast<char>(flags),
            static_cast<char>(flags >> 8)};
    return out;
}

std::string error_of(Side side, std::string_view bytes) {
    FrameDecoder decoder(market_words, side);
    ByteView input = bytes_of(bytes);
    while (true) {
        auto frame = decoder.next(input);
        if (!frame) {
            ByteView more = bytes_of("more");
            ck_assert_text(decoder.next(more).error().message, frame.error().message);
            ck_assert_uint_eq(more.size(), 4);
            return frame.error().message;
        }
        if (!*frame) return "";
    }
}

// A channel and what came of it.
struct End {
    std::unique_ptr<Channel> channel;
    std::vector<std::string> frames;
    std::string closed;
    int drains = 0;
    std::function<void()> then;  // after each frame
    ChannelHandlers handlers() {
        return {[this](const Frame& f) {
                    frames.push_back(std::to_string(static_cast<unsigned>(f.type)) + ":" +
                                     std::string(f.body));
                    if (then) then();
                },
                [this](const Error& e) { closed = e.message; }, [this] { ++drains; }};
    }
    void open(Loop& loop, Fd fd, ChannelOptions options) {
        options.words = market_words;
        auto opened = Channel::open(loop, std::move(fd), handlers(), options);
        OK(opened);
        channel = std::move(*opened);
    }
};

struct Ends {
    Loop loop = open_loop();
    End server, client;
    Ends(ChannelOptions server_options = {}, ChannelOptions client_options = {}) {
        auto [a, b] = pair_of_sockets();
        client_options.side = Side::connector;
        server.open(loop, std::move(a), server_options);
        client.open(loop, std::move(b), client_options);
    }
    void greet() {
        OK(client.channel->send(frame::hello, "h"));
        OK(server.channel->send(frame::welcome, "w"));
        UNTIL(loop, server.frames.size() == 1 && client.frames.size() == 1);
        server.frames.clear();
        client.frames.clear();
    }
};

}  // namespace

START_TEST(any_split_of_the_bytes_gives_the_same_frames) {
    const std::string big = pattern(200'000, 5);
    const std::string all = wire_of(frame::hello, "hello") + wire_of(frame::ok, "") +
                            wire_of(frame::directory, big) +
                            wire_of(frame::order, pattern(300, 6)) + wire_of(frame_ping, "");
    Rng rng(8);
    for (int round = 0; round < 60; ++round) {
        FrameDecoder decoder(market_words, Side::acceptor);
        std::string seen;
        const size_t step_max = round < 20 ? 12 : 1 + rng.below(100'000);
        size_t given = 0;
        while (given < all.size()) {
            const size_t part = std::min<size_t>(all.size() - given, 1 + rng.below(step_max));
            // A copy of its own, so that a view into bytes that are gone shows under the sanitizer.
            const std::string piece = all.substr(given, part);
            given += part;
            ByteView input = bytes_of(piece);
            for (;;) {
                auto frame = decoder.next(input);
                OK(frame);
                if (!*frame) break;
                seen += wire_of((*frame)->type, (*frame)->body);
            }
            ck_assert_uint_eq(input.size(), 0);
            if (round < 3 && given > 5000) break;  // byte by byte: the beginning is enough
        }
        ck_assert(all.starts_with(seen));
        if (round >= 3) ck_assert(seen == all && decoder.between_frames());
    }
}
END_TEST

START_TEST(a_frame_is_refused_at_its_header_before_a_byte_of_its_body_is_kept) {
    const std::string hello = wire_of(frame::hello, "x");
    ck_assert_text(error_of(Side::acceptor, "GET / HTTP/1.1\r\n"), "this is not souk's protocol");
    ck_assert_text(error_of(Side::acceptor, std::string(64, '\0')), "this is not souk's protocol");
    ck_assert_text(error_of(Side::acceptor, raw_header(1, 32, 0)),
                   "the connection begins with a frame of type 32, not with a hello");
    ck_assert_text(error_of(Side::connector, hello),
                   "the connection begins with a frame of type 1, not with a hello");
    ck_assert_text(error_of(Side::acceptor, raw_header(16 * 1024 + 1, 1, 0)),
                   "a frame of type 1 with 16385 bytes, over its limit of 16384");
    ck_assert_text(error_of(Side::acceptor, hello + raw_header(0xffffffff, 35, 0)),
                   "a frame of type 35 with 4294967295 bytes, over its limit of 2097152");
    ck_assert_text(error_of(Side::acceptor, hello + raw_header(0, 999, 0)),
                   "a frame of unknown type 999");
    ck_assert_text(error_of(Side::acceptor, hello + raw_header(0, 32, 256)),
                   "a frame of type 32 with unknown flags 256");
    ck_assert_text(error_of(Side::acceptor, hello + raw_header(1, 0xff00, 0)),
                   "a frame of type 65280 with 1 bytes, over its limit of 0");
    ck_assert_text(error_of(Side::acceptor, hello + hello), "");
    // An announced megabyte of which nothing has come costs nothing.
    FrameDecoder decoder(market_words, Side::acceptor);
    const std::string announced = hello + raw_header(1 << 20, 35, 0);
    ByteView input = bytes_of(announced);
    OK(decoder.next(input));
    OK(decoder.next(input));
    ck_assert_uint_eq(decoder.held(), 0);
    ck_assert(!decoder.between_frames());
}
END_TEST

START_TEST(versions_must_agree_and_the_error_names_both_and_which_is_older) {
    OK(check_version(protocol_version, "7.0"));
    const std::string own = ", this program, souk " + std::string(version()) + ", version " +
                            std::to_string(protocol_version);
    ck_assert_text(check_version(99, "7.0 (abc)").error().message,
                   "the peer, souk 7.0 (abc), speaks version 99 of souk's protocol" + own +
                       ": upgrade this program");
    ck_assert_text(check_version(1, "").error().message,
                   "the peer speaks version 1 of souk's protocol" + own + ": upgrade the peer");
}
END_TEST

START_TEST(frames_pass_between_two_channels_in_order_the_big_ones_too) {
    Ends ends;
    ends.greet();
    const std::string big = pattern(1 << 20, 9);
    OK(ends.client.channel->send(frame::order, "first"));
    OK(ends.client.channel->send(frame::directory, big));
    OK(ends.client.channel->send(frame::order, "last"));
    UNTIL(ends.loop, ends.server.frames.size() == 3);
    ck_assert_text(ends.server.frames[0], "32:first");
    ck_assert(ends.server.frames[1] == "35:" + big);
    ck_assert_text(ends.server.frames[2], "32:last");
    Status longer = ends.client.channel->send(frame::directory,
                                              std::string(market_words(frame::directory) + 1, 'x'));
    ck_assert_text(longer.error().message,
                   "a message of 2097153 bytes is longer than its type may be");
    ends.client.channel->finish();
    UNTIL(ends.loop, !ends.server.closed.empty());
    ck_assert_text(ends.server.closed, "the peer closed the connection");
    ck_assert(ends.server.channel->closed());
    ck_assert(!ends.server.channel->send(frame::ok, std::string_view()));
}
END_TEST

START_TEST(bytes_that_follow_a_frame_unframed_come_as_they_were_sent) {
    Ends ends;
    ends.greet();
    const std::string big = pattern(3 << 20, 4);
    std::string got;
    // As an image: a frame says what comes, and the rest of what was read with it counts already.
    ends.server.then = [&] {
        ends.server.channel->receive_raw(
            [&](ByteView bytes) { got.append(bytes.begin(), bytes.end()); });
    };
    OK(ends.client.channel->send(frame::order, "image"));
    UNTIL(ends.loop, ends.client.channel->queued() == 0);
    size_t sent = 0;
    const size_t part = 100'000;
    const ByteView all = bytes_of(big);
    UNTIL_PEER(ends.loop, [&] {
        const ByteView rest = all.subspan(sent);
        const auto taken = ends.client.channel->send_raw(rest.first(std::min(rest.size(), part)));
        sent += taken.value_or(0);
        return !taken || got.size() == big.size();
    }());
    ck_assert(got == big);
    OK(ends.server.channel->send(frame::ok, "taken"));  // frames go on the other way
    UNTIL(ends.loop, ends.client.frames.size() == 1);
    ends.client.channel->finish();
    UNTIL(ends.loop, !ends.server.closed.empty());
}
END_TEST

START_TEST(a_full_channel_refuses_a_whole_frame_and_says_when_to_go_on) {
    Ends ends({}, {.send_queue_bytes_max = 2 << 20});
    ends.greet();
    ends.server.channel->pause_reading();
    size_t sent = 0;
    bool full = false;
    UNTIL_PEER(ends.loop, [&] {
        for (;;) {
            Status status = ends.client.channel->send(
                frame::directory, std::string(500'000, static_cast<char>(sent)));
            if (!status) {
                ck_assert_int_eq(status.error().code, ENOBUFS);
                full = ends.client.channel->queued() > 1'500'000;
                return full;
            }
            ++sent;
        }
    }());
    ck_assert_uint_eq(ends.server.frames.size(), 0);
    ends.client.drains = 0;
    ends.server.channel->resume_reading();
    UNTIL(ends.loop, ends.server.frames.size() == sent);
    ck_assert_int_ge(ends.client.drains, 1);
    for (size_t i = 0; i < sent; ++i)
        ck_assert(ends.server.frames[i] == "35:" + std::string(500'000, static_cast<char>(i)));
}
END_TEST

START_TEST(a_channel_paused_in_the_middle_of_a_batch_hands_out_the_rest_when_resumed) {
    Loop loop = open_loop();
    auto [ours, theirs] = pair_of_sockets();
    std::vector<std::string> frames;
    std::unique_ptr<Channel> channel;
    std::string closed;
    auto opened = Channel::open(loop, std::move(ours),
                                {[&](const Frame& f) {
                                     frames.emplace_back(f.body);
                                     channel->pause_reading();
                                 },
                                 [&](const Error& e) { closed = e.message; },
                                 {}},
                                {.words = market_words});
    OK(opened);
    channel = std::move(*opened);
    std::string all = wire_of(frame::hello, "0");
    for (int i = 1; i < 5; ++i) all += wire_of(frame::order, std::to_string(i));
    write_all(theirs.get(), all);
    theirs.reset();
    for (size_t n = 1; n <= 5; ++n) {
        UNTIL(loop, frames.size() == n);
        OK(loop.run_until([] { return false; }, Nanos::from_ms(2)));
        ck_assert_uint_eq(frames.size(), n);
        ck_assert_text(frames.back(), std::to_string(n - 1));
        ck_assert_text(closed, "");  // the end comes after the frames
        channel->resume_reading();
    }
    UNTIL(loop, closed == "the peer closed the connection");
}
END_TEST

START_TEST(garbage_is_answered_with_one_line_and_the_end) {
    Rng rng(21);
    Loop loop = open_loop();
    for (int round = 0; round < 50; ++round) {
        Fd ours, theirs;
        std::tie(ours, theirs) = pair_of_sockets();
        End server;
        server.open(loop, std::move(ours), {});
        std::string garbage = pattern(8 + rng.below(5000), static_cast<uint64_t>(round));
        garbage[4] = '\x63';  // no type that opens a connection
        write_all(theirs.get(), garbage);
        std::string answer;
        bool eof = false;
        UNTIL_PEER(loop, (answer += read_some(theirs.get(), &eof), eof));
        ck_assert_uint_eq(server.frames.size(), 0);
        FrameDecoder decoder(market_words, Side::connector);
        ByteView input = bytes_of(answer);
        auto frame = decoder.next(input);
        ck_assert(frame && *frame && (*frame)->type == frame::error_text);
        ck_assert_text(unpack<ErrorText>((*frame)->body)->text, server.closed);
    }
    UNTIL(loop, loop.objects() == 0);
}
END_TEST

START_TEST(a_silent_opening_and_a_torn_frame_end_the_connection) {
    Loop loop = open_loop();
    auto [a, silent] = pair_of_sockets();
    End server;
    server.open(loop, std::move(a), {.first_frame_limit = Nanos::from_ms(10)});
    UNTIL(loop, server.closed == "the peer connected and said nothing");
    auto [b, torn] = pair_of_sockets();
    End other;
    other.open(loop, std::move(b), {});
    write_all(torn.get(), wire_of(frame::hello, "hello").substr(0, 10));
    torn.reset();
    UNTIL(loop, other.closed == "the peer closed the connection in the middle of a message");
}
END_TEST

START_TEST(a_live_peer_is_kept_by_pings_and_a_dead_one_is_given_up) {
    Ends ends({.keepalive = Nanos::from_ms(10)});
    ends.greet();
    const Nanos start = Loop::now();  // ten times as long as silence is suffered
    UNTIL(ends.loop, Loop::now() - start > Nanos::from_ms(300) || !ends.server.closed.empty());
    ck_assert_text(ends.server.closed, "");
    ck_assert_uint_eq(ends.client.frames.size() + ends.server.frames.size(), 0);
    Loop loop = open_loop();
    auto [ours, dead] = pair_of_sockets();
    End server;
    server.open(loop, std::move(ours), {.keepalive = Nanos::from_ms(10)});
    write_all(dead.get(), wire_of(frame::hello, "h"));
    UNTIL(loop, !server.closed.empty());
    ck_assert_msg(server.closed.starts_with("the peer has been silent for "), "%s",
                  server.closed.c_str());
}
END_TEST

// One end talks all the while; what it is sent it reads slowly, or not at all.
START_TEST(a_peer_that_talks_and_never_reads_is_given_up_and_one_that_reads_slowly_is_not) {
    for (const bool reads : {true, false}) {
        Loop loop = open_loop();
        auto [ours, peer] = pair_of_sockets();
        End server;
        server.open(loop, std::move(ours), {.keepalive = Nanos::from_ms(100)});
        write_all(peer.get(), wire_of(frame::hello, "h"));
        UNTIL(loop, server.frames.size() == 1);
        for (int i = 0; i < 48; ++i)
            OK(server.channel->send(frame::ctl_reply, std::string(64 * 1024, 'x')));
        std::string taken(32 * 1024, 0);
        Nanos reads_at = Loop::now();
        Timer talk;
        const int their_end = peer.get();
        std::function<void()> turn = [&] {
            if (!server.closed.empty()) return;
            write_all(their_end, raw_header(0, 0xff01, 0));
            // As often as there was time for, also if this process has come late to it.
            for (; reads && reads_at <= Loop::now(); reads_at += Nanos::from_ms(20))
                (void)::recv(their_end, taken.data(), taken.size(), MSG_DONTWAIT);
            talk = loop.after(Nanos::from_ms(20), turn);
        };
        turn();
        const Nanos start = Loop::now();
        UNTIL(loop,
              !server.closed.empty() || (reads && Loop::now() - start > Nanos::from_ms(1'500)));
        if (reads)
            ck_assert_text(server.closed, "");
        else
            ck_assert_msg(server.closed.starts_with("the peer has read nothing for "), "%s",
                          server.closed.c_str());
    }
}
END_TEST

START_TEST(a_channel_may_be_dropped_in_its_own_callbacks) {
    Loop loop = open_loop();
    for (int when = 0; when < 3; ++when) {
        Fd ours, theirs;
        std::tie(ours, theirs) = pair_of_sockets();
        std::unique_ptr<Channel> channel;
        int calls = 0;
        auto opened = Channel::open(loop, std::move(ours),
                                    {[&](const Frame&) {
                                         ++calls;
                                         if (when == 0) channel.reset();
                                         if (when == 1) channel->refuse("no");
                                     },
                                     [&](const Error&) { ++calls, channel.reset(); },
                                     {}},
                                    {.words = market_words});
        OK(opened);
        channel = std::move(*opened);
        if (when == 2)
            write_all(theirs.get(), "this is garbage");
        else
            write_all(theirs.get(),
                      wire_of(frame::hello, "0") + wire_of(frame::ok, "") + wire_of(frame::ok, ""));
        bool eof = false;
        std::string seen;
        UNTIL_PEER(loop, (seen += read_some(theirs.get(), &eof), eof));
        ck_assert_int_eq(calls, 1);
        ck_assert_int_eq(channel != nullptr, when == 1);
        if (when == 1) ck_assert(seen == wire_of(frame::error_text, pack(ErrorText{"no"})));
    }
    UNTIL(loop, loop.objects() <= 1);
}
END_TEST

// As a joiner that says what only an agent may: not even the body is read.
START_TEST(a_frame_that_comes_in_part_counts_and_ends_with_its_line_where_it_may_not) {
    Loop loop = open_loop();
    auto [a, b] = pair_of_sockets();
    End server;
    ChannelOptions options;
    options.words = market_words;
    size_t most = 0, may = 100'000;
    auto handlers = server.handlers();
    handlers.may_keep = [&]() -> Status {
        most = std::max(most, server.channel->received());
        if (server.channel->received() <= may) return {};
        return fail("too much has come in part");
    };
    server.channel = std::move(*Channel::open(loop, std::move(a), std::move(handlers), options));
    // A whole frame is nobody's to refuse, however long.
    const std::string whole = wire_of(frame::hello, "h") + wire_of(frame::directory, "d");
    write_all(b.get(), whole);
    UNTIL(loop, server.frames.size() == 2);
    ck_assert_uint_eq(server.channel->received(), 0);
    const std::string longest = wire_of(frame::directory, std::string(300'000, 'x'));
    write_all(b.get(), longest.substr(0, 50'000));
    UNTIL(loop, server.channel->received() >= 50'000 - frame_header_bytes);
    ck_assert(server.closed.empty() && server.channel->received() <= 100'000);
    set_nonblocking(b.get());
    for (size_t at = 50'000; at + 1 < longest.size() && server.closed.empty();) {
        const ssize_t n = ::send(b.get(), longest.data() + at,
                                 std::min<size_t>(longest.size() - 1 - at, 10'000), MSG_NOSIGNAL);
        if (n > 0) at += static_cast<size_t>(n);
        (void)loop.run_until([&] { return !server.closed.empty(); }, Nanos::from_ms(3));
    }
    ck_assert_text(server.closed, "too much has come in part");
    ck_assert(most <= 300'000);
    UNTIL_PEER(loop, read_some(b.get()).find("too much has come in part") != std::string::npos);
}
END_TEST

START_TEST(what_a_peer_may_not_say_is_refused_before_its_body) {
    FrameDecoder decoder(market_words, Side::acceptor);
    const std::string first = wire_of(frame::hello, "h");
    ByteView input = bytes_of(first);
    ck_assert(decoder.next(input) && input.empty());
    decoder.allow(joiner_to_market);
    const std::string join = wire_of(frame::join, "j");
    input = bytes_of(join);
    ck_assert(decoder.next(input)->has_value() && input.empty());
    const std::string header = raw_header(200'000, static_cast<unsigned>(frame::job_report), 0);
    input = bytes_of(header);
    ck_assert(!decoder.next(input));
    ck_assert_uint_eq(decoder.held(), frame_header_bytes);
    for (unsigned type = 0; type < 0x100; ++type) {
        const auto t = static_cast<FrameType>(type);
        // Nobody has a word that the others lack the length of.
        for (const Words words : {joiner_to_market, operator_to_market, agent_to_market})
            ck_assert(words(t) == 0 || words(t) == market_words(t));
        ck_assert(!(joiner_to_market(t) && agent_to_market(t)));
        // A node of both roles has all words, and each word needs one.
        ck_assert(role_to_market(trust::node_roles, t) == (agent_to_market(t) != 0));
        ck_assert(!role_to_market({}, t));
    }
    ck_assert_uint_eq(agent_to_market(frame::order), 0);
    ck_assert_uint_eq(agent_to_market(frame::join), 0);
    ck_assert_uint_eq(operator_to_market(frame::job_report), 0);
    using trust::only;
    for (const auto& [type, home] : {std::pair{frame::job_report, true},
                                     {frame::order_failed, true},
                                     {frame::provider_report, false},
                                     {frame::use_report, false}}) {
        ck_assert(role_to_market(only(trust::Role::home), type) == home);
        ck_assert(role_to_market(only(trust::Role::provider), type) != home);
    }
}
END_TEST

UNIT_SUITE(frame, any_split_of_the_bytes_gives_the_same_frames,
           a_frame_is_refused_at_its_header_before_a_byte_of_its_body_is_kept,
           versions_must_agree_and_the_error_names_both_and_which_is_older,
           frames_pass_between_two_channels_in_order_the_big_ones_too,
           bytes_that_follow_a_frame_unframed_come_as_they_were_sent,
           a_full_channel_refuses_a_whole_frame_and_says_when_to_go_on,
           a_channel_paused_in_the_middle_of_a_batch_hands_out_the_rest_when_resumed,
           garbage_is_answered_with_one_line_and_the_end,
           a_silent_opening_and_a_torn_frame_end_the_connection,
           a_live_peer_is_kept_by_pings_and_a_dead_one_is_given_up,
           a_peer_that_talks_and_never_reads_is_given_up_and_one_that_reads_slowly_is_not,
           a_channel_may_be_dropped_in_its_own_callbacks,
           a_frame_that_comes_in_part_counts_and_ends_with_its_line_where_it_may_not,
           what_a_peer_may_not_say_is_refused_before_its_body);
