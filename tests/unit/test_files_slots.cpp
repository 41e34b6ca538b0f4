// SPDX-License-Identifier: GPL-2.0-or-later
// The requests that a client has taken from its kernel, over its death at any point.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <utility>
#include <vector>

#include "agentd/files/slots.hpp"
#include "agentd/files/upstream.hpp"
#include "tests/unit/unit.hpp"

namespace souk::files {
namespace {

constexpr uint32_t room_bytes = request_bytes_max;

struct Fixture {
    Fd memory = std::move(*Slots::make());
    Slots slots = std::move(*Slots::open(memory.get()));

    // A slot that the kernel has put a request into.
    uint32_t put(uint32_t opcode, uint32_t bytes, uint64_t unique) {
        const int free = slots.find_ready();
        ck_assert_int_ge(free, 0);
        const auto n = static_cast<uint32_t>(free);
        slots.begin_reading(n);
        fuse_in_header head{};
        head.len = bytes;
        head.opcode = opcode;
        head.unique = unique;
        std::memcpy(slots.data(n), &head, sizeof head);
        return n;
    }
    uint32_t read(uint32_t bytes, uint64_t unique) {
        const uint32_t n = slots.has_read(put(FUSE_WRITE, bytes, unique), bytes);
        slots.at(n).bytes = bytes;
        return n;
    }
    // The numbers that the next client takes over. The kernel waits for all but `gone`.
    std::vector<uint64_t> next(uint64_t gone = 0) {
        std::vector<uint64_t> uniques;
        const Status done = slots.take_over([&](uint64_t unique) { return unique != gone; },
                                            [&](uint32_t n, size_t bytes) {
                                                ck_assert_uint_eq(bytes, slots.head(n).len);
                                                uniques.push_back(slots.head(n).unique);
                                                slots.take(n, 0);
                                                return Status{};
                                            });
        ck_assert(done.has_value());
        return uniques;
    }
    // Pages of a slot that are mapped here.
    size_t mapped(uint32_t n) {
        const Fd pages(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
        const size_t page = 4096, count = (room_bytes + page - 1) / page;
        std::vector<uint64_t> about(count);
        const auto at = reinterpret_cast<uintptr_t>(slots.data(n)) / page * sizeof(uint64_t);
        const auto size = static_cast<ssize_t>(count * sizeof(uint64_t));
        ck_assert(::pread(pages.get(), about.data(), static_cast<size_t>(size),
                          static_cast<off_t>(at)) == size);
        size_t some = 0;
        for (const uint64_t one : about) some += one >> 63;
        return some;
    }
    static constexpr size_t all_pages = (room_bytes + 4095) / 4096;
};

START_TEST(what_the_kernel_writes_into_is_in_memory_whole) {
    Fixture f;
    const auto n = static_cast<uint32_t>(f.slots.find_ready());
    ck_assert_uint_eq(f.mapped(n), Fixture::all_pages);
    // Another client has its own mapping.
    Fixture other;
    other.slots.begin_reading(0);
    ck_assert_uint_lt(other.mapped(0), 2);
    other.slots.drop(0);
    const auto next = static_cast<uint32_t>(other.slots.find_ready());
    ck_assert_uint_eq(other.mapped(next), Fixture::all_pages);
}
END_TEST

START_TEST(memory_that_was_given_back_is_there_again_for_the_next_request) {
    Fixture f;
    std::vector<uint32_t> taken;
    for (uint64_t i = 1; i <= 12; ++i) {
        taken.push_back(f.read(room_bytes, i));
        ck_assert_uint_eq(f.mapped(taken.back()), Fixture::all_pages);
        f.slots.take(taken.back(), 0);
    }
    for (const uint32_t n : taken) f.slots.drop(n);
    ck_assert(f.slots.has_grown());
    f.slots.give_back();
    ck_assert(!f.slots.has_grown());
    ck_assert_uint_eq(f.mapped(taken.back()), 0);
    for (uint64_t i = 1; i <= 12; ++i) {
        const uint32_t n = f.read(room_bytes, i);
        ck_assert_uint_eq(f.mapped(n), Fixture::all_pages);
        f.slots.take(n, 0);
    }
}
END_TEST

START_TEST(short_requests_leave_the_ready_slot_to_the_next) {
    Fixture f;
    const auto ready = static_cast<uint32_t>(f.slots.find_ready());
    for (uint64_t i = 1; i < slots; ++i) {
        const uint32_t n = f.read(100, i);
        ck_assert_uint_ne(n, ready);
        ck_assert_uint_eq(f.slots.head(n).unique, i);
        ck_assert_uint_lt(f.mapped(n), 2);
        f.slots.take(n, 0);
    }
    // The last one stays where it is.
    const uint32_t last = f.read(100, slots);
    ck_assert_uint_eq(last, ready);
    f.slots.take(last, 0);
    ck_assert_int_eq(f.slots.find_free(), -1);
    ck_assert_int_eq(f.slots.find_ready(), -1);
}
END_TEST

START_TEST(what_a_dead_client_took_the_next_one_has) {
    Fixture f;
    const uint32_t taken = f.read(100, 7);
    f.slots.take(taken, 0);
    // It died as the kernel had just given it another, and at a third that it did not get.
    const uint32_t read = f.read(room_bytes, 8);
    const auto third = static_cast<uint32_t>(f.slots.find_ready());
    f.slots.begin_reading(third);
    ck_assert(f.next() == std::vector<uint64_t>{8});
    ck_assert(f.slots.at(taken).state == Slot::taken && f.slots.at(taken).seq == 1);
    ck_assert(f.slots.at(read).state == Slot::taken && f.slots.at(read).seq == 2);
    ck_assert(f.slots.at(third).state == Slot::free && f.slots.acked() == 1);
    f.slots.drop(taken);
    ck_assert_uint_eq(f.slots.acked(), 2);
    ck_assert(!Slots::open(::open("/dev/null", O_RDWR | O_CLOEXEC)).has_value());
}
END_TEST

START_TEST(what_the_kernel_does_not_wait_for_is_not_taken_over) {
    Fixture f;
    const uint32_t half = f.put(FUSE_WRITE, room_bytes, 9);
    ck_assert(f.next(9).empty());
    ck_assert(f.slots.at(half).state == Slot::free);
    // To these there is no answer: what may have been cut off is not done.
    f.put(FUSE_FORGET, 48, 10);
    ck_assert(f.next(10) == std::vector<uint64_t>{10});
    f.put(FUSE_BATCH_FORGET, 200, 12);
    ck_assert(f.next(12) == std::vector<uint64_t>{12});
    const uint32_t many = f.put(FUSE_BATCH_FORGET, 5000, 14);
    ck_assert(f.next(14).empty());
    ck_assert(f.slots.at(many).state == Slot::free);
}
END_TEST

START_TEST(what_was_on_its_way_to_another_slot_is_taken_over_once) {
    Fixture f;
    const uint32_t from = f.put(FUSE_FORGET, 48, 7);
    const uint32_t to = f.slots.has_read(from, 48);
    ck_assert(to != from && f.slots.at(from).state == Slot::free);
    f.slots.at(from).state = Slot::reading;  // it died in between
    ck_assert(f.next() == std::vector<uint64_t>{7});
}
END_TEST

// It dies after any store: what is left of the request before does not count for the next one.
START_TEST(a_request_has_nothing_of_the_one_before_it_in_its_slot) {
    Fixture f;
    for (uint32_t n = 0; n < slots; ++n) {
        f.slots.at(n).dropped = Slot::ahead;
        f.slots.at(n).signalled = 1;
    }
    const uint32_t large = f.read(room_bytes, 7), small = f.read(100, 8);
    Upstream upstream(f.slots);
    const auto own = static_cast<uint32_t>(f.slots.find_free());
    upstream.ask(own, ByteView(f.slots.data(small), 100));
    for (const uint32_t n : {large, small}) ck_assert(f.slots.at(n).dropped == Slot::no);
    ck_assert(f.slots.at(own).dropped == Slot::yes);
    for (const uint32_t n : {large, small, own}) ck_assert(f.slots.at(n).signalled == 0);
}
END_TEST

START_TEST(a_stream_that_has_ended_is_an_error_and_no_end_of_the_client) {
    Fixture f;
    int pair[2];
    ck_assert(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    Fd ours(pair[0]);
    ck_assert(::close(pair[1]) == 0);
    Upstream upstream(f.slots);
    ck_assert(!upstream.connect(std::move(ours), Hello{}).has_value());
}
END_TEST
}  // namespace

}  // namespace souk::files

namespace souk {
using namespace souk::files;
UNIT_SUITE(files_slots, what_the_kernel_writes_into_is_in_memory_whole,
           memory_that_was_given_back_is_there_again_for_the_next_request,
           short_requests_leave_the_ready_slot_to_the_next,
           what_a_dead_client_took_the_next_one_has,
           what_the_kernel_does_not_wait_for_is_not_taken_over,
           what_was_on_its_way_to_another_slot_is_taken_over_once,
           a_request_has_nothing_of_the_one_before_it_in_its_slot,
           a_stream_that_has_ended_is_an_error_and_no_end_of_the_client);
}  // namespace souk
