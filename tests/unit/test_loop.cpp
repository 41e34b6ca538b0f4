// SPDX-License-Identifier: GPL-2.0-or-later
// The event loop and its streams, against real sockets of this process.
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
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
           receive_buffers_are_given_out_as_they_are_missed_and_no_more_than_there_are,
           a_file_is_synced_while_the_loop_goes_on_and_what_cannot_be_says_so,
           a_loop_that_is_full_refuses_and_goes_on, a_loop_may_go_with_everything_under_way);
