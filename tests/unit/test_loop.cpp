// SPDX-License-Identifier: GPL-2.0-or-later
// The event loop and its streams, against real sockets of this process.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>

#include "kernel/sys/loop/timers.hpp"
#include "tests/unit/loop_fixture.hpp"
#include "tests/unit/temp_dir.hpp"

using namespace souk;
using namespace souk::unit;

START_TEST(a_key_that_outlived_its_object_finds_nothing_in_a_reused_slot) {
    SlotTable<int> table(2);
    const SlotKey first = table.insert(std::make_unique<int>(1));
    const SlotKey second = table.insert(std::make_unique<int>(2));
    ck_assert(!table.insert(std::make_unique<int>(3)));  // bounded
    table.take(first);
    ck_assert_ptr_null(table.find(first));
    const SlotKey third = table.insert(std::make_unique<int>(3));
    ck_assert_uint_eq(third.slot, first.slot);
    ck_assert_ptr_null(table.find(first));
    ck_assert_int_eq(*table.find(third), 3);
    ck_assert_int_eq(*table.find(second), 2);
    ck_assert_ptr_null(table.find(SlotKey{}));
    ck_assert_uint_eq(table.used(), 2);
}
END_TEST

START_TEST(timers_fire_in_the_order_of_deadline_then_of_addition) {
    // Against a sorted list, with random cancellations.
    Rng rng(7);
    for (int round = 0; round < 50; ++round) {
        TimerHeap heap;
        std::vector<int> fired, expected;
        std::vector<std::pair<Nanos, int>> model;
        std::vector<SlotKey> keys;
        for (int i = 0; i < 200; ++i) {
            const Nanos deadline{static_cast<int64_t>(rng.below(40))};
            keys.push_back(heap.add(deadline, [&fired, i] { fired.push_back(i); }));
            model.push_back({deadline, i});
            if (rng.chance(0.4)) {
                const size_t victim = rng.below(keys.size());
                const bool waited = heap.cancel(keys[victim]);
                const auto found = std::find_if(model.begin(), model.end(), [&](auto& m) {
                    return m.second == static_cast<int>(victim);
                });
                ck_assert_int_eq(waited, found != model.end());
                if (waited) model.erase(found);
            }
        }
        std::sort(model.begin(), model.end());
        for (auto& m : model) expected.push_back(m.second);
        ck_assert_uint_eq(heap.size(), model.size());
        std::function<void()> fn;
        while (heap.pop_due(Nanos{100}, heap.next_seq(), fn)) fn();
        ck_assert(fired == expected);
        ck_assert(heap.next() == Nanos::never());
    }
}
END_TEST

START_TEST(a_timer_fires_after_its_deadline_and_a_cancelled_one_never) {
    Loop loop = open_loop();
    std::vector<int> fired;
    const Nanos start = Loop::now();
    const auto in = [&](int64_t ms, int number) {
        return loop.at(start + Nanos::from_ms(ms), [&fired, number] { fired.push_back(number); });
    };
    Timer a = in(30, 3), b = in(10, 1), c = in(20, 2), d, e = in(15, 9);
    e.cancel();
    { Timer dropped = in(16, 9); }
    // Set by another. Its place among the others is a matter of how late this process is woken.
    Timer f = loop.at(start + Nanos::from_ms(5),
                      [&] { d = loop.after(Nanos{0}, [&] { fired.push_back(0); }); });
    UNTIL(loop, fired.size() == 4);
    ck_assert_uint_eq(std::erase(fired, 0), 1);
    ck_assert(fired == (std::vector<int>{1, 2, 3}));
    ck_assert_int_ge((Loop::now() - start).ns, Nanos::from_ms(30).ns);
    ck_assert(!a.waiting());
}
END_TEST

START_TEST(an_idle_loop_makes_no_system_calls_and_many_timers_cost_few) {
    Loop loop = open_loop();
    auto [ours, theirs] = pair_of_sockets();
    Got got;
    auto stream = loop.stream(std::move(ours), got.handlers());
    OK(stream);
    std::vector<Timer> timers;  // ten thousand far away, cancelled and set again
    for (int round = 0; round < 2; ++round) {
        timers.clear();
        for (int i = 0; i < 10'000; ++i)
            timers.push_back(loop.after(Nanos::from_s(1000 + i), [] {}));
    }
    bool done = false;
    const uint64_t before = loop.stats().iterations;
    Timer end = loop.after(Nanos::from_ms(50), [&] { done = true; });
    UNTIL(loop, done);
    ck_assert_uint_le(loop.stats().iterations - before, 4);
}
END_TEST

START_TEST(deferred_functions_run_at_the_end_of_the_iteration_before_anything_is_sent) {
    Loop loop = open_loop();
    Fd ours, theirs;
    std::tie(ours, theirs) = pair_of_sockets();
    Got got;
    auto stream = loop.stream(std::move(ours), got.handlers());
    OK(stream);
    std::vector<int> order;
    bool sent_before_commit = false, committed = false;
    Timer t = loop.after(Nanos{0}, [&, peer = theirs.get()] {
        OK(stream->send(bytes_of("after")));
        loop.defer([&, peer] {
            order.push_back(1);
            loop.defer([&, peer] {  // deferred by a deferred one: still before the send
                order.push_back(3);
                sent_before_commit = !read_some(peer).empty();
                committed = true;
            });
        });
        loop.defer([&] { order.push_back(2); });
    });
    std::string seen;
    UNTIL_PEER(loop, (seen += read_some(theirs.get())) == "after");
    ck_assert(committed && !sent_before_commit);
    ck_assert(order == (std::vector<int>{1, 2, 3}));
}
END_TEST

START_TEST(what_is_held_leaves_when_it_may_in_its_order_and_not_before) {
    Loop loop = open_loop();
    Fd ours[2], theirs[2];
    Got got[2];
    std::vector<Stream> streams;
    for (int i = 0; i < 2; ++i) {
        std::tie(ours[i], theirs[i]) = pair_of_sockets();
        auto stream = loop.stream(std::move(ours[i]), got[i].handlers());
        OK(stream);
        streams.push_back(std::move(*stream));
    }
    loop.hold_sends(true);
    int turns = 0;
    std::function<void()> turn;
    Timer t;
    turn = [&] {  // some iterations, each with something to send; what comes is heard all along
        OK(streams[0].send(bytes_of("a" + std::to_string(turns))));
        if (turns == 2)
            streams[1].close_after_send(limit);
        else if (turns < 2)
            OK(streams[1].send(bytes_of("b" + std::to_string(turns))));
        if (++turns < 5) t = loop.after(Nanos{0}, turn);
    };
    t = loop.after(Nanos{0}, turn);
    write_all(theirs[0].get(), "heard");
    UNTIL(loop, turns == 5 && got[0].data == "heard");
    for (const Fd& peer : theirs) ck_assert(read_some(peer.get()).empty());
    loop.hold_sends(false);
    std::string first, second;
    UNTIL_PEER(loop, (first += read_some(theirs[0].get())) == "a0a1a2a3a4");
    UNTIL_PEER(loop, (second += read_some(theirs[1].get())) == "b0b1");
    OK(streams[0].send(bytes_of("now")));
    UNTIL_PEER(loop, (first += read_some(theirs[0].get())) == "a0a1a2a3a4now");
}
END_TEST

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

START_TEST(receive_buffers_are_given_out_as_they_are_missed_and_no_more_than_there_are) {
    const auto opened = Ring::open({.buffers = 8, .buffers_first = 3});
    OK(opened);
    Ring& ring = **opened;
    ck_assert_uint_eq(ring.buffers_published(), 3);
    for (const unsigned now : {6u, 8u, 8u}) {
        ring.more_buffers();
        ck_assert_uint_eq(ring.buffers_published(), now);
    }
}
END_TEST

START_TEST(a_file_is_synced_while_the_loop_goes_on_and_what_cannot_be_says_so) {
    const TempDir dir;
    const Fd file = *open_at(dir.fd.get(), "file", O_RDWR | O_CREAT, 0600);
    ck_assert_int_eq(::pwrite(file.get(), "bytes", 5, 0), 5);
    int pipe[2];
    ck_assert_int_eq(::pipe2(pipe, O_CLOEXEC), 0);
    const Fd reader(pipe[0]), writer(pipe[1]);
    Loop loop = open_loop();
    int ended = 0, turns = 0;
    int code = 0;
    const auto good = [&](const Status& s) { ended += s.has_value(); };
    const Sync all = *loop.sync(file.get(), 0, 0, good),
               part = *loop.sync(file.get(), 0, 4096, good);
    const Sync none =
        *loop.sync(writer.get(), 0, 0, [&](const Status& s) { code = s ? 0 : s.error().code; });
    {
        const Sync silent =
            *loop.sync(file.get(), 0, 0, [&](const Status&) { ck_abort_msg("closed"); });
    }
    loop.defer([&] { ++turns; });
    UNTIL(loop, ended == 2 && code != 0);
    ck_assert_int_eq(code, EINVAL);
    ck_assert_int_eq(turns, 1);
}
END_TEST

START_TEST(a_loop_that_is_full_refuses_and_goes_on) {
    LoopOptions options;
    options.objects_max = 2;
    Loop loop = open_loop(options);
    auto [a, b] = pair_of_sockets();
    auto [c, d] = pair_of_sockets();
    Got at_a, at_b, at_c;
    auto one = loop.stream(std::move(a), at_a.handlers());
    auto two = loop.stream(std::move(b), at_b.handlers());
    auto three = loop.stream(std::move(c), at_c.handlers());
    ck_assert(one && two && !three);
    ck_assert_text(three.error().message, "the event loop is full: 2 connections and watches");
    OK(one->send(bytes_of("works")));
    UNTIL(loop, at_b.data == "works");
}
END_TEST

START_TEST(a_loop_may_go_with_everything_under_way) {
    auto [a, b] = pair_of_sockets();
    auto listening = listen_stream(*Address::parse("127.0.0.1:0"));
    const Fd event(eventfd(0, EFD_CLOEXEC));
    struct Owner {
        Stream stream;
        Listener listener;
        Watch watch;
        Connect connect;
        Timer timer;
    };
    auto address = *Address::local(listening->get());
    Loop loop = open_loop();
    auto owner = std::make_shared<Owner>();  // owned by its own callbacks alone
    std::weak_ptr<Owner> alive = owner;
    owner->stream = std::move(
        *loop.stream(std::move(a), {[owner](ByteView) {}, {}, [owner](const Error&) {}, {}}));
    owner->listener = std::move(*loop.listen(std::move(*listening), [owner](Fd) {}, {}));
    owner->watch = std::move(*loop.watch(event.get(), POLLIN, [owner](short) {}));
    owner->connect = std::move(*loop.connect(address, limit, [owner](Result<Fd>) {}));
    owner->timer = loop.after(limit, [owner] {});
    OK(owner->stream.send(Bytes(2'000'000, 'x')));
    owner.reset();
    OK(loop.run_until([] { return false; }, Nanos::from_ms(2)));
    { Loop gone = std::move(loop); }
    ck_assert(alive.expired());
    char c;
    while (recv(b.get(), &c, 1, 0) > 0) {
        char buf[65536];
        if (recv(b.get(), buf, sizeof buf, MSG_DONTWAIT) <= 0) break;
    }
}
END_TEST

UNIT_SUITE(loop, a_key_that_outlived_its_object_finds_nothing_in_a_reused_slot,
           timers_fire_in_the_order_of_deadline_then_of_addition,
           a_timer_fires_after_its_deadline_and_a_cancelled_one_never,
           an_idle_loop_makes_no_system_calls_and_many_timers_cost_few,
           deferred_functions_run_at_the_end_of_the_iteration_before_anything_is_sent,
           what_is_held_leaves_when_it_may_in_its_order_and_not_before,
           bytes_come_through_whole_in_both_directions_on_every_rung_of_the_ladder,
           a_full_send_queue_refuses_all_of_a_send_and_tells_when_it_drains,
           a_paused_stream_delivers_nothing_and_holds_its_peer_back,
           a_half_closed_peer_still_gets_its_answer,
           a_peer_that_is_gone_is_an_error_after_its_last_words,
           closing_after_send_delivers_the_last_message_although_input_is_unread,
           a_lingering_stream_ends_at_its_limit_when_the_peer_never_reads,
           objects_close_in_their_own_callbacks_and_slots_are_reused_without_crosstalk,
           a_thousand_connections_echo_over_tcp,
           receive_buffers_are_given_out_as_they_are_missed_and_no_more_than_there_are,
           a_file_is_synced_while_the_loop_goes_on_and_what_cannot_be_says_so,
           a_loop_that_is_full_refuses_and_goes_on, a_loop_may_go_with_everything_under_way);
