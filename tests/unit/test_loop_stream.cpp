// SPDX-License-Identifier: GPL-2.0-or-later
// Streams of a loop, on every rung of the ladder.
#include <sys/resource.h>

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>

#include "tests/unit/loop_fixture.hpp"

using namespace souk;
using namespace souk::unit;

START_TEST(bytes_come_through_whole_in_both_directions_on_every_rung_of_the_ladder) {
    for (unsigned rung = 0; rung < 4; ++rung) {
        LoopOptions options;
        options.ring.first_rung = rung;
        options.ring.buffers = 4;
        options.ring.buffer_bytes = 1024;
        Loop loop = open_loop(options);
        auto [a, b] = pair_of_sockets();
        Got at_a, at_b;
        auto stream_a = loop.stream(std::move(a), at_a.handlers());
        auto stream_b = loop.stream(std::move(b), at_b.handlers());
        const std::string to_b = pattern(3'000'000, 1), to_a = pattern(700'000, 2);
        OK(stream_a->send(Bytes(to_b.begin(), to_b.end())));
        for (size_t at = 0; at < to_a.size(); at += 777)
            OK(stream_b->send(bytes_of(std::string_view(to_a).substr(at, 777))));
        UNTIL(loop, at_b.data.size() == to_b.size() && at_a.data.size() == to_a.size());
        ck_assert(at_b.data == to_b && at_a.data == to_a);
        ck_assert_uint_eq(stream_a->queued(), 0);
        ck_assert_uint_eq(loop.stats().stale_completions, 0);
    }
}
END_TEST

START_TEST(a_full_send_queue_refuses_all_of_a_send_and_tells_when_it_drains) {
    Loop loop = open_loop();
    Fd ours, theirs;
    std::tie(ours, theirs) = pair_of_sockets();
    Got got;
    auto stream = loop.stream(std::move(ours), got.handlers(), {.send_queue_bytes_max = 1 << 20});
    const std::string part = pattern(100'000, 3);
    std::string sent, seen;
    // The peer does not read: the kernel takes a socket buffer's worth, then the queue fills to its
    // bound.
    for (;;) {
        Status status = stream->send(bytes_of(part));
        if (!status) {
            ck_assert_int_eq(status.error().code, ENOBUFS);
            if (stream->queued() + part.size() > (1 << 20) && got.drains == 0) {
                const size_t queued = stream->queued();
                OK(loop.run_until([] { return false; }, Nanos::from_ms(1)));
                if (stream->queued() == queued) break;
                continue;
            }
        }
        if (status) sent += part;
        ck_assert_uint_le(stream->queued(), 1 << 20);
    }
    got.drains = 0;
    UNTIL_PEER(loop, (seen += read_some(theirs.get())).size() == sent.size());
    ck_assert(seen == sent);
    UNTIL(loop, got.drains == 1 && stream->queued() == 0);
    OK(stream->send(bytes_of("more")));
}
END_TEST

START_TEST(a_paused_stream_delivers_nothing_and_holds_its_peer_back) {
    LoopOptions options;
    options.ring.buffers = 8;
    options.ring.buffers_first = 1;
    options.ring.buffer_bytes = 4096;
    Loop loop = open_loop(options);
    Fd ours, theirs;
    std::tie(ours, theirs) = pair_of_sockets();
    set_nonblocking(theirs.get());
    std::string data;
    int eofs = 0;
    bool paused = false;
    Result<Stream> stream;
    StreamHandlers handlers{[&](ByteView bytes) {
                                ck_assert_msg(!paused, "data while paused");
                                data += text_of(bytes);
                                // from inside: the rest of the batch must be held
                                stream->pause_reading();
                                paused = true;
                            },
                            [&] {
                                ck_assert(!paused);
                                ++eofs;
                            },
                            [](const Error&) { ck_abort_msg("broken"); },
                            {}};
    stream = loop.stream(std::move(ours), handlers);
    const std::string all = pattern(2'000'000, 4);
    size_t sent = 0;
    auto push = [&] {
        while (sent < all.size()) {
            const ssize_t n =
                ::send(theirs.get(), all.data() + sent, all.size() - sent, MSG_NOSIGNAL);
            if (n < 0) return;
            sent += static_cast<size_t>(n);
        }
    };
    push();
    UNTIL(loop, paused);
    // However long we wait, what the peer can push is bounded by the socket's buffer and the
    // ring's.
    OK(loop.run_until(
        [&] {
            push();
            return false;
        },
        Nanos::from_ms(20)));
    ck_assert_uint_lt(sent, all.size());
    const size_t data_then = data.size();
    OK(loop.run_until([] { return false; }, Nanos::from_ms(5)));
    ck_assert_uint_eq(data.size(), data_then);
    bool closed = false;
    UNTIL_PEER(loop, [&] {
        if (paused) {
            paused = false;
            stream->resume_reading();
        }
        push();
        if (sent == all.size() && !closed) {
            theirs.reset();
            closed = true;
        }
        return eofs == 1;
    }());
    ck_assert(data == all);
}
END_TEST

START_TEST(a_half_closed_peer_still_gets_its_answer) {
    Loop loop = open_loop();
    Fd ours, theirs;
    std::tie(ours, theirs) = pair_of_sockets();
    Result<Stream> stream;
    Got got;
    StreamHandlers handlers = got.handlers();
    handlers.on_eof = [&] {
        ++got.eofs;
        OK(stream->send(bytes_of("answer to " + got.data)));
        stream->finish();
        ck_assert(!stream->send(bytes_of("late")));
    };
    stream = loop.stream(std::move(ours), handlers);
    write_all(theirs.get(), "question");
    shutdown(theirs.get(), SHUT_WR);
    std::string seen;
    bool eof = false;
    UNTIL_PEER(loop, (seen += read_some(theirs.get(), &eof), eof));
    ck_assert_text(seen, "answer to question");
    ck_assert_int_eq(got.eofs, 1);
    ck_assert_int_eq(got.errors, 0);
}
END_TEST

START_TEST(a_peer_that_is_gone_is_an_error_after_its_last_words) {
    Loop loop = open_loop();
    auto [ours, theirs] = pair_of_sockets();
    Got got;
    auto stream = loop.stream(std::move(ours), got.handlers());
    write_all(theirs.get(), "no such version");
    theirs.reset();
    OK(stream->send(bytes_of("hello")));  // EPIPE
    UNTIL(loop, got.errors == 1);
    ck_assert_text(got.data, "no such version");
    ck_assert_text(got.error, "send: Broken pipe");
    ck_assert(!stream->send(bytes_of("x")));
    stream->close();
    UNTIL(loop, loop.objects() == 0);
}
END_TEST

START_TEST(closing_after_send_delivers_the_last_message_although_input_is_unread) {
    Loop loop = open_loop();
    auto address = Address::parse("127.0.0.1:0");
    auto listening = listen_stream(*address);
    OK(listening);
    auto bound = Address::local(listening->get());
    std::vector<Stream> streams;
    auto listener = loop.listen(
        std::move(*listening),
        [&](Fd fd) {
            auto stream = loop.stream(std::move(fd),
                                      {[](ByteView) { ck_abort_msg("a callback after close"); },
                                       {},
                                       [](const Error&) { ck_abort_msg("a callback after close"); },
                                       {}});
            OK(stream->send(bytes_of("go away")));
            stream->close_after_send(Nanos::from_s(10));
        },
        {});
    Fd peer(socket(AF_INET, SOCK_STREAM, 0));
    ck_assert_int_eq(connect(peer.get(), bound->raw(), bound->raw_bytes()), 0);
    write_all(peer.get(), std::string(20'000, 'g'));
    std::string seen;
    bool eof = false;
    UNTIL_PEER(loop, (seen += read_some(peer.get(), &eof), eof));
    ck_assert_text(seen, "go away");
    ck_assert_uint_eq(loop.objects(), 2);  // it waits for us
    peer.reset();
    UNTIL(loop, loop.objects() == 1);
}
END_TEST

START_TEST(a_lingering_stream_ends_at_its_limit_when_the_peer_never_reads) {
    Loop loop = open_loop();
    auto [ours, theirs] = pair_of_sockets();
    Got got;
    auto stream = loop.stream(std::move(ours), got.handlers());
    OK(stream->send(Bytes(3'000'000, 'x')));
    stream->close_after_send(Nanos::from_ms(20));
    ck_assert(!*stream);
    UNTIL(loop, loop.objects() == 0);
}
END_TEST

START_TEST(objects_close_in_their_own_callbacks_and_slots_are_reused_without_crosstalk) {
    // Each connection carries its own number and is closed in on_data in the middle of its peer's
    // writing, so that completions for it are under way while its slot gets a new tenant.
    Loop loop = open_loop();
    struct Conn {
        Stream stream;
        Fd peer;
        bool closed = false;
    };
    Rng rng(11);
    std::map<int, std::unique_ptr<Conn>> conns;
    int next = 0, finished = 0;
    auto add = [&] {
        const int id = next++;
        auto conn = std::make_unique<Conn>();
        auto [ours, theirs] = pair_of_sockets();
        conn->peer = std::move(theirs);
        Conn* raw = conn.get();
        auto stream =
            loop.stream(std::move(ours), {[&, id, raw](ByteView bytes) {
                                              ck_assert_msg(!raw->closed, "data after close");
                                              const std::string mark = std::to_string(id) + ".";
                                              const std::string_view text = text_of(bytes);
                                              ck_assert_msg(text.starts_with(mark),
                                                            "%d got bytes of another", id);
                                              raw->closed = true;
                                              raw->stream.close();
                                              ++finished;
                                          },
                                          {},
                                          [](const Error&) { ck_abort_msg("broken"); },
                                          {}});
        OK(stream);
        conn->stream = std::move(*stream);
        OK(conn->stream.send(bytes_of("x")));
        conns[id] = std::move(conn);
    };
    for (int i = 0; i < 40; ++i) add();
    UNTIL_PEER(loop, [&] {
        for (auto it = conns.begin(); it != conns.end();) {
            Conn& conn = *it->second;
            if (conn.closed) {
                it = conns.erase(it);
                if (next < 2000) add();
                continue;
            }
            if (rng.chance(0.5)) write_all(conn.peer.get(), std::to_string(it->first) + ".");
            if (rng.chance(0.05) && !conn.closed) {  // closed from outside, data perhaps under way
                conn.closed = true;
                conn.stream.close();
                ++finished;
            }
            ++it;
        }
        return finished == 2000;
    }());
    conns.clear();
    UNTIL(loop, loop.objects() == 0);
}
END_TEST

START_TEST(a_thousand_connections_echo_over_tcp) {
    // Or as many as this process may have descriptors for: two each, and some for the rest.
    rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    const int count = static_cast<int>(std::min<rlim_t>(1000, files.rlim_cur / 2 - 50));
    Loop loop = open_loop();
    auto listening = listen_stream(*Address::parse("127.0.0.1:0"), 2048);
    OK(listening);
    auto bound = Address::local(listening->get());
    std::map<int, Stream> served;
    int next = 0;
    auto listener =
        loop.listen(std::move(*listening),
                    [&](Fd fd) {
                        const int id = next++;
                        auto stream = loop.stream(
                            std::move(fd), {[&, id](ByteView bytes) { OK(served[id].send(bytes)); },
                                            [&, id] { served.erase(id); },
                                            [&, id](const Error&) { served.erase(id); },
                                            {}});
                        OK(stream);
                        served[id] = std::move(*stream);
                    },
                    {});
    std::vector<Got> got(static_cast<size_t>(count));
    std::vector<Stream> clients(static_cast<size_t>(count));
    std::vector<Connect> connects;
    int connected = 0;
    for (int i = 0; i < count; ++i) {
        auto connect = loop.connect(*bound, limit, [&, i](Result<Fd> fd) {
            ck_assert_msg(fd.has_value(), "%s", fd ? "" : fd.error().message.c_str());
            auto stream = loop.stream(std::move(*fd), got[static_cast<size_t>(i)].handlers());
            OK(stream);
            clients[static_cast<size_t>(i)] = std::move(*stream);
            OK(clients[static_cast<size_t>(i)].send(bytes_of("hello " + std::to_string(i))));
            ++connected;
        });
        OK(connect);
        connects.push_back(std::move(*connect));
    }
    UNTIL(loop, connected == count &&
                    std::all_of(got.begin(), got.end(), [](Got& g) { return g.data.size() >= 7; }));
    for (int round = 0; round < 3; ++round) {  // all at once: many more than there are buffers
        for (Got& g : got) g.data.clear();
        for (int i = 0; i < count; ++i)
            OK(clients[static_cast<size_t>(i)].send(bytes_of(std::string(3000, 'a' + i % 26))));
        UNTIL(loop,
              std::all_of(got.begin(), got.end(), [](Got& g) { return g.data.size() == 3000; }));
        for (int i = 0; i < count; ++i)
            ck_assert(got[static_cast<size_t>(i)].data == std::string(3000, 'a' + i % 26));
    }
    clients.clear();
    UNTIL(loop, served.empty() && loop.objects() == 1);
}
END_TEST

UNIT_SUITE(loop_stream, bytes_come_through_whole_in_both_directions_on_every_rung_of_the_ladder,
           a_full_send_queue_refuses_all_of_a_send_and_tells_when_it_drains,
           a_paused_stream_delivers_nothing_and_holds_its_peer_back,
           a_half_closed_peer_still_gets_its_answer,
           a_peer_that_is_gone_is_an_error_after_its_last_words,
           closing_after_send_delivers_the_last_message_although_input_is_unread,
           a_lingering_stream_ends_at_its_limit_when_the_peer_never_reads,
           objects_close_in_their_own_callbacks_and_slots_are_reused_without_crosstalk,
           a_thousand_connections_echo_over_tcp);
