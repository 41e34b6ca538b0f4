// SPDX-License-Identifier: GPL-2.0-or-later
// A job's server holds locks for the job's processes. A program beside it must see each as taken,
// for as long as the job has it and no longer.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "agentd/files/lock_requests.hpp"
#include "agentd/files/lock_wait.hpp"
#include "agentd/files/locks.hpp"
#include "agentd/files/talk.hpp"
#include "agentd/root/locks.hpp"
#include "checkpoint/kept_locks.h"
#include "kernel/sys/net/descriptors.hpp"
#include "kernel/sys/net/lock_door.hpp"
#include "kernel/sys/store/served_locks.h"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

namespace souk::files {
namespace {

constexpr uint64_t secret = uint64_t{1} << 56 | 0x123456789abcde;
constexpr fuse_file_lock whole{0, INT64_MAX, F_WRLCK, 0};

fuse_file_lock lock_of(uint32_t type, uint64_t start, uint64_t end) {
    return {start, end, type, 0};
}

struct Fixture {
    unit::TempDir dir;
    std::string path = dir.write("file", "text");
    std::vector<Fd> files;
    struct stat st {};
    Locks locks{::getuid()};

    Locks::Opened open(uint64_t number, int flags = O_RDWR) {
        files.emplace_back(::open(path.c_str(), flags | O_CLOEXEC));
        ck_assert(files.back() && ::fstat(files.back().get(), &st) == 0);
        return {files.back().get(), number};
    }
    Locks::Holder holder(uint64_t session, uint64_t owner, bool flock = false,
                         bool index = false) const {
        return {session, st.st_dev, st.st_ino, owner, flock, index};
    }
    // A program at home gets that lock.
    bool is_free(const fuse_file_lock& range = whole, bool flock = false) const {
        const Fd other(::open(path.c_str(), O_RDWR | O_CLOEXEC));
        return set_lock(other.get(), flock, range, false) == 0;
    }
    bool asks(uint32_t question, uint32_t number, const Locks::Holder& who,
              const Locks::Opened& opened) {
        const uint64_t start = souk_locks_begin(question, number);
        fuse_file_lock range{start, start + secret - 1, F_WRLCK, 0};
        ck_assert_int_eq(locks.get(who, opened, range), 0);
        return range.type != F_UNLCK;
    }
    // Waits for a thread's end.
    std::vector<Locks::Ended> ended() {
        for (int turn = 0; turn < 5000; ++turn) {
            pollfd ready{locks.fd(), POLLIN, 0};
            (void)::poll(&ready, 1, locks.is_ending() ? 2 : 1000);
            if (auto all = locks.take_ended(); !all.empty()) return all;
        }
        return {};
    }
};

START_TEST(two_holders_of_one_open_file_exclude_each_other_and_the_home) {
    Fixture f;
    const auto file = f.open(1);
    const auto parent = f.holder(1, 10), child = f.holder(1, 11);
    ck_assert_int_eq(f.locks.set(parent, file, lock_of(F_WRLCK, 0, 9), 0, 0), 0);
    ck_assert_int_eq(f.locks.set(child, file, lock_of(F_WRLCK, 5, 5), 0, 0), -EAGAIN);
    ck_assert_int_eq(f.locks.set(child, file, lock_of(F_WRLCK, 10, 19), 0, 0), 0);
    ck_assert(!f.is_free(lock_of(F_RDLCK, 9, 9)) && !f.is_free(lock_of(F_RDLCK, 10, 10)));
    f.locks.closed(child);
    ck_assert(!f.is_free(lock_of(F_RDLCK, 9, 9)) && f.is_free(lock_of(F_RDLCK, 10, 10)));
    f.locks.released(1, 1);
    ck_assert(f.is_free() && f.locks.held() == 0);
}
END_TEST

START_TEST(who_reads_by_one_file_may_write_by_another_and_keeps_what_it_has) {
    Fixture f;
    const auto reads = f.open(1, O_RDONLY), writes = f.open(2);
    const auto who = f.holder(1, 10);
    ck_assert_int_eq(f.locks.set(who, reads, lock_of(F_RDLCK, 0, 9), 0, 0), 0);
    ck_assert_int_eq(f.locks.set(who, writes, lock_of(F_WRLCK, 20, 29), 0, 0), 0);
    ck_assert(!f.is_free(lock_of(F_WRLCK, 0, 0)) && f.is_free(lock_of(F_RDLCK, 0, 0)));
    ck_assert(!f.is_free(lock_of(F_RDLCK, 20, 20)));
}
END_TEST

START_TEST(a_lock_changes_its_holder_and_is_free_at_no_moment) {
    for (const bool flock : {false, true}) {
        Fixture f;
        const auto there = f.open(1);
        const auto old = f.holder(1, 10, flock);
        const uint32_t number = 1 | (flock ? souk_locks_of_flock : 0);
        ck_assert_int_eq(f.locks.set(old, there, whole, 0, 0), 0);
        ck_assert(f.asks(souk_locks_mark, number, old, there));
        ck_assert(f.asks(souk_locks_hold, 0, old, there));
        f.locks.closed(old);
        f.locks.released(1, 1);
        f.locks.left(1);
        ck_assert(!f.is_free(whole, flock));
        const auto here = f.open(5);
        const auto restored = f.holder(2, 77, flock);
        ck_assert(!f.asks(souk_locks_adopt, number + 1, restored, here));
        ck_assert(f.asks(souk_locks_adopt, number, restored, here));
        f.locks.released(2, 5);  // a restore that fails
        ck_assert(!f.is_free(whole, flock));
        f.locks.left(2);
        const auto again = f.holder(3, 78, flock);
        ck_assert(f.asks(souk_locks_adopt, number, again, here));
        ck_assert(f.asks(souk_locks_go, 0, again, here));
        ck_assert(!f.is_free(whole, flock));
        f.locks.released(3, 5);
        ck_assert(f.is_free(whole, flock));
    }
}
END_TEST

START_TEST(what_a_lost_copy_has_held_goes_when_the_job_locks_elsewhere) {
    Fixture f;
    const auto there = f.open(1), here = f.open(2);
    ck_assert_int_eq(f.locks.set(f.holder(1, 10), there, lock_of(F_WRLCK, 0, 9), 0, 0), 0);
    ck_assert(f.asks(souk_locks_hold, 0, f.holder(1, 10), there));
    f.locks.left(1);
    ck_assert(!f.is_free(lock_of(F_WRLCK, 0, 9)));
    ck_assert_int_eq(f.locks.set(f.holder(2, 20), here, lock_of(F_WRLCK, 5, 20), 0, 0), 0);
    ck_assert(f.is_free(lock_of(F_WRLCK, 0, 4)) && !f.is_free(lock_of(F_WRLCK, 5, 5)));
}
END_TEST

START_TEST(who_waits_is_told_when_it_is_free_or_interrupted) {
    Fixture f;
    const auto file = f.open(1);
    const Fd other(::open(f.path.c_str(), O_RDWR | O_CLOEXEC));
    ck_assert_int_eq(set_lock(other.get(), false, whole, false), 0);
    ck_assert_int_eq(f.locks.set(f.holder(1, 10), file, whole, 7, 70), Locks::comes_later);
    ck_assert_int_eq(f.locks.set(f.holder(1, 10), file, whole, 7, 70), Locks::comes_later);
    ck_assert(f.locks.waits(1, 7) && !f.locks.waits(2, 7));
    f.locks.interrupt(1, 70);
    auto all = f.ended();
    ck_assert(all.size() == 1 && all[0].seq == 7 && all[0].error == -EINTR);
    ck_assert_int_eq(f.locks.set(f.holder(1, 10), file, whole, 8, 80), Locks::comes_later);
    fuse_file_lock none = whole;
    none.type = F_UNLCK;
    ck_assert_int_eq(set_lock(other.get(), false, none, false), 0);
    all = f.ended();
    ck_assert(all.size() == 1 && all[0].unique == 80 && all[0].error == 0 && !f.is_free());
    // Nobody hears of this one, and it is free again.
    ck_assert_int_eq(f.locks.set(f.holder(1, 11), f.open(2), whole, 9, 90), Locks::comes_later);
    f.locks.left(1);
    ck_assert(!f.locks.waits(1, 9));
    for (int turn = 0; turn < 1000 && f.locks.is_ending(); ++turn) {
        ck_assert(f.locks.take_ended().empty());
        ::usleep(1000);
    }
    ck_assert(!f.locks.is_ending() && f.is_free());
}
END_TEST

START_TEST(a_close_while_another_thread_waits_lets_go_what_was_held_and_not_what_comes) {
    for (const bool inherited : {false, true}) {
        Fixture f;
        const auto file = f.open(1);
        const auto who = f.holder(1, 10), child = f.holder(1, 11);
        const auto own = lock_of(F_WRLCK, 50, 59), theirs = lock_of(F_WRLCK, 0, 9);
        if (inherited)  // its lock is by another description than the open file's
            ck_assert_int_eq(f.locks.set(child, file, lock_of(F_WRLCK, 80, 89), 0, 0), 0);
        ck_assert_int_eq(f.locks.set(who, file, own, 0, 0), 0);
        const Fd other(::open(f.path.c_str(), O_RDWR | O_CLOEXEC));
        ck_assert_int_eq(set_lock(other.get(), false, theirs, false), 0);
        ck_assert_int_eq(f.locks.set(who, file, theirs, 7, 70), Locks::comes_later);
        f.locks.closed(who);
        ck_assert(f.is_free(own));
        // It still counts as one, and as none of its child's.
        ck_assert_int_eq(f.locks.set(who, file, lock_of(F_WRLCK, 20, 29), 0, 0), 0);
        ck_assert_int_eq(f.locks.set(child, file, lock_of(F_WRLCK, 20, 29), 0, 0), -EAGAIN);
        f.locks.closed(who);
        ck_assert_int_eq(f.locks.set(child, file, lock_of(F_RDLCK, 30, 39), 0, 0), 0);
        ck_assert_int_eq(set_lock(other.get(), false, lock_of(F_UNLCK, 0, 9), false), 0);
        const auto all = f.ended();
        ck_assert(all.size() == 1 && all[0].error == 0);
        ck_assert(!f.is_free(theirs) && f.is_free(own));
        ck_assert_int_eq(f.locks.set(child, file, theirs, 0, 0), -EAGAIN);
        ck_assert_int_eq(f.locks.set(who, file, lock_of(F_UNLCK, 0, 9), 0, 0), 0);
        ck_assert(f.is_free(theirs) && !f.is_free(lock_of(F_WRLCK, 30, 39)));
    }
}
END_TEST

START_TEST(who_has_not_heard_of_a_lock_has_what_it_had_before) {
    Fixture f;
    const auto file = f.open(1);
    const auto who = f.holder(1, 10);
    const Fd other(::open(f.path.c_str(), O_RDWR | O_CLOEXEC));
    const auto read = lock_of(F_RDLCK, 0, 9), write = lock_of(F_WRLCK, 5, 19);
    const auto is_as_before = [&] {
        return f.is_free(lock_of(F_RDLCK, 0, 9)) && !f.is_free(lock_of(F_WRLCK, 0, 0)) &&
               !f.is_free(lock_of(F_WRLCK, 9, 9)) && f.is_free(lock_of(F_WRLCK, 10, 19));
    };
    ck_assert_int_eq(f.locks.set(who, file, read, 0, 40), 0);
    // At once, and others came after it.
    ck_assert_int_eq(f.locks.set(who, file, write, 0, 42), 0);
    ck_assert_int_eq(f.locks.set(who, file, lock_of(F_WRLCK, 60, 60), 0, 44), 0);
    ck_assert(!f.is_free(lock_of(F_RDLCK, 5, 5)));
    ck_assert_int_eq(f.locks.undo(who, write, undo_number(42)), 0);
    ck_assert(is_as_before() && !f.is_free(lock_of(F_WRLCK, 60, 60)));
    // After a wait.
    ck_assert_int_eq(set_lock(other.get(), false, read, false), 0);
    ck_assert_int_eq(f.locks.set(who, file, write, 7, 70), Locks::comes_later);
    ck_assert_int_eq(set_lock(other.get(), false, lock_of(F_UNLCK, 0, 9), false), 0);
    ck_assert(f.ended().size() == 1 && !f.is_free(lock_of(F_RDLCK, 5, 5)));
    ck_assert_int_eq(f.locks.undo(who, write, undo_number(70)), 0);
    ck_assert(is_as_before());
    // It had none: there is none.
    ck_assert_int_eq(f.locks.set(who, file, lock_of(F_WRLCK, 30, 39), 0, 80), 0);
    ck_assert_int_eq(f.locks.undo(who, lock_of(F_WRLCK, 30, 39), undo_number(80)), 0);
    ck_assert(is_as_before() && f.is_free(lock_of(F_WRLCK, 30, 39)));
}
END_TEST

START_TEST(who_leaves_while_it_waits_keeps_what_it_takes_along) {
    Fixture f;
    const auto there = f.open(1);
    const auto old = f.holder(1, 10);
    const Fd other(::open(f.path.c_str(), O_RDWR | O_CLOEXEC));
    ck_assert_int_eq(f.locks.set(old, there, lock_of(F_RDLCK, 0, 9), 0, 0), 0);
    ck_assert_int_eq(set_lock(other.get(), false, lock_of(F_RDLCK, 0, 9), false), 0);
    ck_assert_int_eq(f.locks.set(old, there, whole, 7, 70), Locks::comes_later);
    ck_assert(f.asks(souk_locks_mark, 1, old, there) && f.asks(souk_locks_hold, 0, old, there));
    ck_assert_int_eq(set_lock(other.get(), false, lock_of(F_UNLCK, 0, 9), false), 0);
    pollfd ready{f.locks.fd(), POLLIN, 0};
    ck_assert_int_eq(::poll(&ready, 1, 5000), 1);  // it was granted
    f.locks.left(1);
    ck_assert(f.locks.take_ended().empty());
    ck_assert(f.is_free(lock_of(F_WRLCK, 10, 99)));
    ck_assert(!f.is_free(lock_of(F_WRLCK, 0, 9)) && f.is_free(lock_of(F_RDLCK, 0, 9)));
}
END_TEST

// The kernel grants a lock, and the server hears of it later. Meanwhile another thread of the
// holder changes what it has.
START_TEST(what_changes_between_a_grant_and_its_note_is_kept) {
    const auto low = lock_of(F_WRLCK, 0, 9), high = lock_of(F_RDLCK, 5, 19);
    enum class Then { lets_go, undoes_own, leaves };
    for (const Then then : {Then::lets_go, Then::undoes_own, Then::leaves}) {
        Fixture f;
        const auto file = f.open(1);
        const auto who = f.holder(1, 10);
        const Fd other(::open(f.path.c_str(), O_RDWR | O_CLOEXEC));
        if (then == Then::lets_go)
            ck_assert_int_eq(f.locks.set(who, file, lock_of(F_RDLCK, 0, 9), 0, 60), 0);
        ck_assert_int_eq(set_lock(other.get(), false, lock_of(F_RDLCK, 0, 9), false), 0);
        ck_assert_int_eq(f.locks.set(who, file, low, 7, 70), Locks::comes_later);
        ck_assert_int_eq(set_lock(other.get(), false, lock_of(F_UNLCK, 0, 9), false), 0);
        pollfd ready{f.locks.fd(), POLLIN, 0};
        ck_assert_int_eq(::poll(&ready, 1, 5000), 1);
        if (then == Then::lets_go) {
            ck_assert_int_eq(f.locks.set(who, file, lock_of(F_UNLCK, 0, 9), 0, 80), 0);
            ck_assert_uint_eq(f.locks.take_ended().size(), 1);
            ck_assert_int_eq(f.locks.undo(who, low, undo_number(70)), 0);
            ck_assert(f.is_free());
            continue;
        }
        ck_assert_int_eq(f.locks.set(who, file, high, 0, 80), 0);
        if (then == Then::undoes_own) {
            ck_assert_uint_eq(f.locks.take_ended().size(), 1);
            ck_assert_int_eq(f.locks.undo(who, high, undo_number(80)), 0);
            ck_assert(!f.is_free(lock_of(F_RDLCK, 0, 4)) && !f.is_free(lock_of(F_RDLCK, 5, 9)));
            ck_assert(f.is_free(lock_of(F_WRLCK, 10, 19)));
            continue;
        }
        ck_assert(f.asks(souk_locks_mark, 1, who, file) && f.asks(souk_locks_hold, 0, who, file));
        f.locks.left(1);
        ck_assert(f.locks.take_ended().empty());
        ck_assert(f.is_free(lock_of(F_WRLCK, 0, 4)));
        ck_assert(!f.is_free(lock_of(F_WRLCK, 5, 9)) && f.is_free(lock_of(F_RDLCK, 5, 19)));
    }
}
END_TEST

START_TEST(a_lock_that_comes_too_late_is_undone_by_the_number_of_its_request) {
    fuse_in_header head{};
    fuse_lk_in in{};
    head.opcode = FUSE_SETLKW;
    head.unique = (uint64_t{5} << 32) | 4712;
    head.len = sizeof head + sizeof in;
    in.lk = lock_of(F_WRLCK, 5, 19);
    Bytes request(sizeof head + sizeof in);
    std::memcpy(request.data(), &head, sizeof head);
    std::memcpy(request.data() + sizeof head, &in, sizeof in);
    const Bytes undoes = letting_go_request(request);
    ck_assert_uint_eq(undoes.size(), request.size());
    std::memcpy(&head, undoes.data(), sizeof head);
    std::memcpy(&in, undoes.data() + sizeof head, sizeof in);
    ck_assert(head.opcode == FUSE_SETLK && in.lk.type == F_UNLCK);
    ck_assert_uint_eq(in.padding, undo_number((uint64_t{5} << 32) | 4712));
    ck_assert_uint_ne(in.padding, 0);
    in.lk.type = F_UNLCK;
    std::memcpy(request.data() + sizeof head, &in, sizeof in);
    ck_assert(letting_go_request(request).empty());
}
END_TEST

START_TEST(a_mapped_index_is_one_job_s) {
    Fixture f;
    const fuse_file_lock shared = lock_of(F_RDLCK, souk_index_byte, souk_index_byte);
    const auto file = f.open(1);
    const auto one = f.holder(1, 10, false, true), two = f.holder(1, 11, false, true);
    ck_assert_int_eq(f.locks.set(one, file, shared, 0, 0), 0);
    ck_assert_int_eq(f.locks.set(two, file, shared, 0, 0), 0);
    ck_assert(!f.is_free(shared) && f.locks.has_index(one.device, one.inode));
    fuse_file_lock alone = shared;
    alone.type = F_WRLCK;
    ck_assert_int_eq(f.locks.set(one, file, alone, 0, 0), -EAGAIN);
    f.locks.closed(f.holder(1, 10));
    ck_assert(!f.is_free(shared));
    f.locks.closed(f.holder(1, 11));
    ck_assert(f.is_free(shared) && !f.locks.has_index(one.device, one.inode));
    const Fd other(::open(f.path.c_str(), O_RDWR | O_CLOEXEC));
    ck_assert_int_eq(set_lock(other.get(), false, shared, false), 0);
    ck_assert_int_eq(f.locks.set(one, file, shared, 0, 0), -EAGAIN);
}
END_TEST

START_TEST(locks_come_through_a_door_for_whoever_knows_the_secret) {
    Fixture f;
    const auto file = f.open(1);
    auto door = open_lock_door(secret);
    ck_assert(door.has_value());
    const Fd kept(::open(f.path.c_str(), O_RDWR | O_CLOEXEC));
    ck_assert_int_eq(set_lock(kept.get(), false, whole, false), 0);
    const pid_t keeper = ::fork();
    if (keeper == 0) {
        const int all[] = {kept.get()};
        for (;;) {
            pollfd ready{door->get(), POLLIN, 0};
            if (::poll(&ready, 1, 5000) != 1) ::_exit(0);
            answer_at_lock_door(door->get(), secret, ::getuid(), all, 1);
        }
    }
    ck_assert(take_from_lock_door(secret + 1, 0).empty());
    ck_assert_uint_eq(take_from_lock_door(secret, ::getuid()).size(), 1);
    if (::getuid() == 0) {  // the keeper is root's
        ck_assert(f.asks(souk_locks_fetch, 1, f.holder(1, 10), file));
        ck_assert_int_eq(f.locks.set(f.holder(1, 10), file, lock_of(F_UNLCK, 0, 9), 0, 0), 0);
        ck_assert(f.is_free(lock_of(F_WRLCK, 0, 9)) && !f.is_free(lock_of(F_WRLCK, 10, 10)));
    }
    ::kill(keeper, SIGKILL);
    ::waitpid(keeper, nullptr, 0);
}
END_TEST

// A CRIU's end of a talk with souk-root.
struct CriuTalk {
    Fd socket;
    explicit CriuTalk(root::Locks& locks) {
        auto end = locks.open(-1, ::getuid());
        ck_assert(end.has_value());
        socket = std::move(*end);
    }
    void ask(uint8_t what, uint64_t of) const {
        souk_locks_packet packet{};
        packet.what = what;
        souk_locks_token_of(of, packet.token);
        ck_assert(::send(socket.get(), &packet, sizeof packet, 0) == sizeof packet);
    }
    bool has_answer(int wait_ms) const {
        pollfd ready{socket.get(), POLLIN, 0};
        return ::poll(&ready, 1, wait_ms) == 1;
    }
    // Returns how many descriptors have come; -1: something else was said.
    int hear(uint8_t what) const {
        ck_assert(has_answer(5000));
        souk_locks_packet packet{};
        auto got =
            receive_descriptors(socket.get(), {reinterpret_cast<char*>(&packet), sizeof packet});
        ck_assert(got && *got);
        return packet.what == what ? static_cast<int>((*got)->descriptors.size()) : -1;
    }
};

void look_at_talks(root::Locks& locks) {
    std::vector<pollfd> ready;
    locks.wait_for(ready);
    ck_assert_int_gt(::poll(ready.data(), ready.size(), 5000), 0);
    locks.look(ready.data(), ready.size());
}

START_TEST(a_door_that_nobody_answers_yet_holds_nobody_else) {
    Fixture f;
    auto door = open_lock_door(secret);
    ck_assert(door.has_value());
    root::Locks locks;
    const CriuTalk first(locks), second(locks);
    first.ask(souk_locks_take_served, secret);
    second.ask(souk_locks_take, secret);
    look_at_talks(locks);
    ck_assert(second.has_answer(0) && !first.has_answer(0));
    ck_assert_int_eq(second.hear(souk_locks_none), 0);
    pollfd comes{door->get(), POLLIN, 0};
    ck_assert_int_eq(::poll(&comes, 1, 5000), 1);
    const Fd kept(::open(f.path.c_str(), O_RDWR | O_CLOEXEC));
    const int all[] = {kept.get(), kept.get()};
    answer_at_lock_door(door->get(), secret, ::getuid(), all, 2);
    ck_assert_int_eq(first.hear(souk_locks_keep), 2);
    // It is heard again, once who has answered it is gone.
    first.ask(souk_locks_take, secret);
    look_at_talks(locks);
    look_at_talks(locks);
    ck_assert_int_eq(first.hear(souk_locks_none), 0);
}
END_TEST

}  // namespace
}  // namespace souk::files

namespace souk {
using namespace souk::files;
UNIT_SUITE(files_locks, two_holders_of_one_open_file_exclude_each_other_and_the_home,
           who_reads_by_one_file_may_write_by_another_and_keeps_what_it_has,
           a_lock_changes_its_holder_and_is_free_at_no_moment,
           what_a_lost_copy_has_held_goes_when_the_job_locks_elsewhere,
           who_waits_is_told_when_it_is_free_or_interrupted,
           a_close_while_another_thread_waits_lets_go_what_was_held_and_not_what_comes,
           who_has_not_heard_of_a_lock_has_what_it_had_before,
           what_changes_between_a_grant_and_its_note_is_kept,
           who_leaves_while_it_waits_keeps_what_it_takes_along,
           a_lock_that_comes_too_late_is_undone_by_the_number_of_its_request,
           a_mapped_index_is_one_job_s, locks_come_through_a_door_for_whoever_knows_the_secret,
           a_door_that_nobody_answers_yet_holds_nobody_else);
}  // namespace souk
