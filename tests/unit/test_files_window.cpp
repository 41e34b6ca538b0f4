// SPDX-License-Identifier: GPL-2.0-or-later
// How much is read ahead of a job at once, and what goes before it.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "agentd/files/read_window.hpp"
#include "agentd/files/upstream.hpp"
#include "tests/unit/unit.hpp"

namespace souk::files {
namespace {

constexpr uint64_t mb = 1 << 20;
constexpr int64_t ms = 1'000'000;

// A reader that asks for all that it may, of a link that brings so many bytes a millisecond after
// so many milliseconds.
uint64_t after_some_seconds(uint64_t bytes_each_ms, int64_t trip_ms) {
    ReadWindow window;
    std::vector<int64_t> due;
    int64_t free_at = 0;
    const auto each = static_cast<int64_t>(mb / bytes_each_ms);  // ms that a megabyte takes
    for (int64_t now = 0; now < 5000; ++now) {
        while (window.has_room(mb)) {
            window.asked(mb, now * ms);
            free_at = std::max(free_at, now) + each;
            due.push_back(free_at + trip_ms);
        }
        while (!due.empty() && due.front() <= now) {
            due.erase(due.begin());
            window.answered(mb, mb, trip_ms * ms, now * ms);
        }
    }
    return window.bytes();
}

START_TEST(a_far_and_fast_home_is_asked_for_more_at_once_and_no_more_than_may_be) {
    ck_assert_uint_eq(after_some_seconds(mb / 10, 1), ReadWindow::bytes_min);
    ck_assert_uint_eq(after_some_seconds(10'000, 20), ReadWindow::bytes_min);
    const uint64_t far = after_some_seconds(mb / 4, 20);  // 250 MB/s: 5 MB are under way
    ck_assert(far > 7 * mb && far < 13 * mb);
    ck_assert_uint_eq(after_some_seconds(mb / 2, 200), ReadWindow::bytes_max);
}
END_TEST

START_TEST(one_read_may_always_go_and_what_was_lost_with_a_stream_does_not_count) {
    ReadWindow window;
    ck_assert(window.has_room(100 * mb));
    window.asked(100 * mb, 0);
    ck_assert(!window.has_room(1));
    window.begin();
    ck_assert(window.has_room(1));
    window.answered(mb, mb, ms, ms);  // of the stream before
    ck_assert(window.has_room(1));
}
END_TEST

// What the kernel asks, by its number, as the server gets it.
START_TEST(what_is_read_ahead_waits_for_all_else) {
    const Fd memory = *Slots::make();
    Slots slots = *Slots::open(memory.get());
    Upstream upstream(slots);
    int pair[2];
    ck_assert_int_eq(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    const Fd server(pair[1]);
    ck_assert(upstream.connect(Fd(pair[0]), {}).has_value());
    struct {
        Head head{sizeof(Welcome), Kind::welcome, 0, 0};
        Welcome welcome;
    } greeting;
    ck_assert(::write(server.get(), &greeting, sizeof greeting) == sizeof greeting);
    ck_assert(upstream.receive([] {}, [](const Talk::Message&) { return Status{}; }).has_value());
    uint32_t next = 0;
    const auto ask = [&](uint32_t opcode) {
        struct {
            fuse_in_header head{};
            fuse_read_in in{};
        } request;
        request.head.len = sizeof request;
        request.head.opcode = opcode;
        request.head.unique = 100 + next;
        request.in.size = mb;
        std::memcpy(slots.data(next), &request, sizeof request);
        slots.at(next).bytes = sizeof request;
        slots.take(next, 0);
        upstream.queue(next++);
    };
    Talk talk;
    const auto sent = [&] {
        ck_assert(upstream.send().has_value());
        std::vector<uint32_t> opcodes;
        for (;;) {
            uint8_t* const room = talk.room();
            const ssize_t n = ::recv(server.get(), room, talk.room_bytes(), MSG_DONTWAIT);
            if (n <= 0) return opcodes;
            talk.took(static_cast<size_t>(n));
            const auto message = *talk.next();
            if (!message || message->head.kind != Kind::request) continue;
            fuse_in_header head{};
            std::memcpy(&head, message->body.data(), sizeof head);
            opcodes.push_back(head.opcode);
        }
    };
    for (const uint32_t opcode : {FUSE_READ, FUSE_READ, FUSE_READ, FUSE_READ, FUSE_LOOKUP})
        ask(opcode);
    ck_assert(sent() == std::vector<uint32_t>({FUSE_LOOKUP, FUSE_READ, FUSE_READ}));
    ck_assert(!upstream.wants_to_send() && !upstream.idle());
    ask(FUSE_WRITE);
    ck_assert(sent() == std::vector<uint32_t>({FUSE_WRITE}));
    upstream.answered(0, {}, ms);
    slots.drop(0);
    ck_assert(upstream.wants_to_send());
    ck_assert(sent() == std::vector<uint32_t>({FUSE_READ}));
    // All of it again that has no answer, on the next stream.
    ck_assert_int_eq(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    ck_assert(upstream.connect(Fd(pair[0]), {}).has_value());
    const Fd again(pair[1]);
    ck_assert(::write(again.get(), &greeting, sizeof greeting) == sizeof greeting);
    ck_assert(upstream.receive([] {}, [](const Talk::Message&) { return Status{}; }).has_value());
    ck_assert(::dup2(again.get(), server.get()) >= 0);
    talk = Talk();
    ck_assert(sent() == std::vector<uint32_t>({FUSE_LOOKUP, FUSE_WRITE, FUSE_READ, FUSE_READ}));
    // But not for all that comes: the server can keep only so many answers behind it.
    for (int i = 0; i < 40; ++i) ask(FUSE_WRITE);
    const std::vector<uint32_t> busy = sent();
    const auto read = std::find(busy.begin(), busy.end(), uint32_t{FUSE_READ});
    ck_assert(busy.size() == 41 && read - busy.begin() > 20 && read - busy.begin() <= 32);
}
END_TEST

}  // namespace

UNIT_SUITE(files_window, a_far_and_fast_home_is_asked_for_more_at_once_and_no_more_than_may_be,
           one_read_may_always_go_and_what_was_lost_with_a_stream_does_not_count,
           what_is_read_ahead_waits_for_all_else);

}  // namespace souk::files
