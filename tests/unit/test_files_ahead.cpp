// SPDX-License-Identifier: GPL-2.0-or-later
// A client answers some writes before the home has them. These tests check which ones, and what
// happens if the home then refuses them.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "agentd/files/ahead_writes.hpp"
#include "agentd/files/own_requests.hpp"
#include "agentd/files/session.hpp"
#include "tests/unit/unit.hpp"

namespace souk::files {
namespace {

constexpr uint64_t node = 9, fh = 40;
constexpr int64_t ms = 1'000'000;

struct Told {
    uint64_t unique = 0;
    int error = 0;
    uint32_t size = 0;
};

// A client's slots, over the deaths of clients.
struct Fixture {
    Fd memory = std::move(*Slots::make());
    Slots slots = std::move(*Slots::open(memory.get()));
    Cache cache;
    std::vector<Told> told;
    std::vector<uint64_t> refused;
    uint64_t size_told = 0;  // with the last attributes
    int64_t now = 1000 * ms;
    uint64_t unique = 0;
    std::unique_ptr<AheadWrites> writes;

    explicit Fixture(bool hears_closes = true) {
        if (hears_closes) slots.hear_closes();
        begin();
    }
    // Begins with another client.
    void begin() {
        writes = std::make_unique<AheadWrites>(
            slots, cache,
            [this](const void* bytes, size_t size) {
                fuse_out_header head{};
                ck_assert_uint_ge(size, sizeof head);
                std::memcpy(&head, bytes, sizeof head);
                fuse_write_out out{};
                fuse_attr_out attr{};
                const auto* body = static_cast<const uint8_t*>(bytes) + sizeof head;
                if (size == sizeof head + sizeof out) std::memcpy(&out, body, sizeof out);
                if (size == sizeof head + sizeof attr) std::memcpy(&attr, body, sizeof attr);
                size_told = attr.attr.size;
                told.push_back({head.unique, -head.error, out.size});
                return Status{};
            },
            [this](uint64_t of) { refused.push_back(of); }, [](uint64_t) { return false; });
        ck_assert(writes->begin().has_value());
    }
    template <class Body>
    uint32_t take(uint32_t opcode, const Body& body, size_t data = 0, uint32_t pid = 7) {
        const int n = slots.find_free();
        ck_assert_int_ge(n, 0);
        fuse_in_header head{};
        head.len = static_cast<uint32_t>(sizeof head + sizeof body + data);
        head.opcode = opcode;
        head.unique = ++unique;
        head.nodeid = node;
        head.pid = pid;
        const auto slot = static_cast<uint32_t>(n);
        std::memcpy(slots.data(slot), &head, sizeof head);
        std::memcpy(slots.data(slot) + sizeof head, &body, sizeof body);
        slots.at(slot).bytes = head.len;
        return slot;
    }
    // A write of the kernel's; its slot. `ahead`: whether it was answered.
    uint32_t write(bool& ahead, uint32_t size = 4096, uint64_t of = fh, uint32_t flags = O_WRONLY,
                   uint32_t write_flags = 0) {
        fuse_write_in in{};
        in.fh = of;
        in.size = size;
        in.flags = flags;
        in.write_flags = write_flags;
        const uint32_t n = take(FUSE_WRITE, in, size);
        const size_t before = told.size();
        const auto settled = writes->settles(n, now);
        ck_assert(settled.has_value());
        ahead = *settled;
        if (*settled) return n;
        slots.take(n, now);
        ck_assert(writes->taken(n, now, true).has_value());
        ahead = told.size() > before;
        if (ahead) ck_assert(told.back().unique == unique && told.back().size == size);
        return n;
    }
    uint32_t ahead(uint64_t of = fh) {
        bool answered = false;
        const uint32_t n = write(answered, 4096, of);
        ck_assert(answered);
        return n;
    }
    static Bytes said(int error, uint32_t size) {
        Bytes bytes;
        put(bytes, fuse_out_header{0, -error, 0});
        if (error == 0) put(bytes, fuse_write_out{size, 0});
        return bytes;
    }
    void answer(uint32_t n, int error = 0, uint32_t size = 4096) {
        ck_assert(writes->took(n, said(error, size), now));
    }
    // The error that a close, or an fsync, is told at once; -1 if the home is asked instead.
    int ask(uint32_t opcode, uint64_t of = fh, uint32_t pid = 7) {
        fuse_release_in in{};
        in.fh = of;
        const uint32_t n = take(opcode, in, 0, pid);
        const auto settled = writes->settles(n, now);
        ck_assert(settled.has_value());
        if (*settled) return told.back().error;
        slots.take(n, now);
        return -1;
    }
    // The home answers that it has nothing against the request in the last slot.
    int asked_home(uint32_t opcode, uint64_t of = fh, uint32_t pid = 7) {
        fuse_release_in in{};
        in.fh = of;
        const uint32_t n = take(opcode, in, 0, pid);
        slots.take(n, now);
        Bytes answer;
        put(answer, fuse_out_header{sizeof(fuse_out_header), 0, unique});
        const Bytes other = writes->as_told(n, answer, false);
        writes->told(n, other, now);
        slots.drop(n);
        if (other.empty()) return 0;
        fuse_out_header head{};
        std::memcpy(&head, other.data(), sizeof head);
        ck_assert(head.len == sizeof head && head.unique == unique);
        return -head.error;
    }
};

START_TEST(a_write_is_answered_ahead_and_its_close_waits_until_the_home_has_it) {
    Fixture f;
    ck_assert_int_eq(f.ask(FUSE_FLUSH), 0);
    const uint32_t n = f.ahead();
    ck_assert_int_eq(f.ask(FUSE_FLUSH), -1);
    f.answer(n);
    ck_assert_int_eq(f.ask(FUSE_FLUSH), 0);
    ck_assert_int_eq(f.ask(FUSE_FSYNC), -1);
    ck_assert(f.refused.empty());
}
END_TEST

START_TEST(what_is_synced_with_each_write_or_closed_unheard_is_not_answered_ahead) {
    Fixture f;
    bool ahead = true;
    for (const uint32_t flags : {O_DSYNC, O_SYNC, O_DIRECT}) {
        f.write(ahead, 4096, fh, O_WRONLY | flags);
        ck_assert_msg(!ahead, "%o", flags);
    }
    f.write(ahead, 4096, fh, O_RDWR, FUSE_WRITE_CACHE);
    ck_assert(!ahead);
    f.write(ahead, 4096, fh, O_RDWR | O_APPEND, FUSE_WRITE_LOCKOWNER);
    ck_assert(ahead);
    Fixture old(false);  // its first client was of an older version
    old.write(ahead);
    ck_assert(!ahead);
}
END_TEST

START_TEST(an_error_is_told_once_to_what_comes_next_of_that_open_file) {
    for (const uint32_t next : {FUSE_WRITE, FUSE_FLUSH, FUSE_FSYNC}) {
        Fixture f;
        f.answer(f.ahead(), ENOSPC);
        ck_assert_uint_eq(f.refused.size(), 1);
        ck_assert_int_eq(f.ask(FUSE_FLUSH, fh + 1), 0);  // another open file's close
        if (next == FUSE_WRITE) {
            bool settled = false;
            f.write(settled);
            ck_assert(settled && f.told.back().error == ENOSPC);
        } else {
            ck_assert_int_eq(f.ask(next), ENOSPC);
        }
        ck_assert_int_eq(f.ask(FUSE_FLUSH), 0);
    }
}
END_TEST

START_TEST(what_waited_for_the_home_is_told_what_came_meanwhile) {
    for (const uint32_t next : {FUSE_FLUSH, FUSE_FSYNC}) {
        Fixture f;
        const uint32_t n = f.ahead();
        ck_assert_int_eq(f.ask(next), -1);
        f.answer(n, EDQUOT);
        ck_assert_int_eq(f.asked_home(next), EDQUOT);
        ck_assert_int_eq(f.asked_home(next), 0);
    }
}
END_TEST

START_TEST(who_copies_a_descriptor_from_outside_waits_for_nothing_and_takes_no_error) {
    Fixture f;
    const uint32_t n = f.ahead();
    ck_assert_int_eq(f.ask(FUSE_FLUSH, fh, 0), 0);
    f.answer(n, EIO);
    ck_assert_int_eq(f.ask(FUSE_FLUSH, fh, 0), 0);
    ck_assert_int_eq(f.ask(FUSE_FSYNC, fh, 0), EIO);
    ck_assert_int_eq(f.asked_home(FUSE_FSYNC, fh, 0), EIO);
    ck_assert_int_eq(f.ask(FUSE_FLUSH), EIO);
    ck_assert_int_eq(f.ask(FUSE_FLUSH), 0);
}
END_TEST

// A dump: CRIU, in the capsule, closes its copies before the job has closed anything.
START_TEST(who_copies_a_descriptor_inside_takes_no_error_either) {
    Fixture f;
    f.answer(f.ahead(), ENOSPC);
    f.now += 6000 * ms;
    const uint32_t later = f.ahead(fh + 1);
    f.writes->copied(f.now);
    f.answer(later, EIO);
    ck_assert_int_eq(f.ask(FUSE_FLUSH), ENOSPC);
    ck_assert_int_eq(f.asked_home(FUSE_FLUSH, fh + 1), EIO);
    ck_assert_int_eq(f.ask(FUSE_FLUSH, fh + 1), EIO);
    ck_assert_int_eq(f.ask(FUSE_FLUSH), ENOSPC);  // the job's own
    ck_assert_int_eq(f.ask(FUSE_RELEASE), -1);
    ck_assert_int_eq(f.ask(FUSE_FLUSH), 0);
    ck_assert_int_eq(f.ask(FUSE_FSYNC, fh + 1), EIO);
    ck_assert_int_eq(f.ask(FUSE_FSYNC, fh + 1), -1);
}
END_TEST

START_TEST(errors_and_writes_outlive_the_client) {
    Fixture f;
    const uint32_t lost = f.ahead(), failed = f.ahead(fh + 1);
    f.answer(failed, EFBIG);
    const uint64_t unique = f.slots.head(lost).unique;
    f.told.clear();
    f.begin();
    ck_assert(f.told.size() == 1 && f.told[0].unique == unique && f.told[0].size == 4096);
    ck_assert_int_eq(f.ask(FUSE_FLUSH, fh), -1);
    f.answer(lost, ENOSPC);
    f.begin();
    ck_assert_int_eq(f.ask(FUSE_FLUSH, fh), ENOSPC);
    ck_assert_int_eq(f.ask(FUSE_FLUSH, fh + 1), EFBIG);
    f.begin();
    ck_assert_int_eq(f.ask(FUSE_FLUSH, fh + 1), 0);
}
END_TEST

START_TEST(a_write_that_is_not_whole_is_an_error_whatever_the_server_says) {
    for (const Bytes& said : {Fixture::said(0, 4095), Fixture::said(0, 5000), Bytes(3)}) {
        Fixture f;
        ck_assert(f.writes->took(f.ahead(), said, f.now));
        ck_assert_int_ne(f.ask(FUSE_FLUSH), 0);
    }
}
END_TEST

START_TEST(an_error_that_nobody_can_hear_is_forgotten) {
    Fixture f;
    const uint32_t n = f.ahead();
    ck_assert_int_eq(f.ask(FUSE_RELEASE), -1);
    f.begin();  // the next client finds the release, too
    f.answer(n, ENOSPC);
    int ends[2];
    ck_assert_int_eq(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    const Fd mine(ends[0]);
    f.writes->ask(Fd(ends[1]));
    f.writes->tell(false);
    char word = 0;
    ck_assert(::recv(mine.get(), &word, 1, MSG_DONTWAIT) == 1 && word == 'd');
}
END_TEST

START_TEST(who_asks_whether_all_is_at_home_hears_when_it_is) {
    Fixture f;
    const auto ask = [&f] {
        int ends[2];
        ck_assert_int_eq(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
        f.writes->ask(Fd(ends[1]));
        f.writes->tell(false);
        return Fd(ends[0]);
    };
    const auto heard = [](const Fd& from) {
        char word = 0;
        return ::recv(from.get(), &word, 1, MSG_DONTWAIT) == 1 ? word : ' ';
    };
    const uint32_t n = f.ahead();
    const Fd first = ask();
    const uint32_t later = f.ahead();
    ck_assert_int_eq(heard(first), ' ');
    f.answer(n);
    f.writes->tell(false);
    ck_assert_int_eq(heard(first), 'd');
    f.answer(later, ENOSPC);
    ck_assert_int_eq(heard(ask()), 'e');
    ck_assert_int_eq(f.ask(FUSE_FLUSH), ENOSPC);
    ck_assert_int_eq(heard(ask()), 'd');
}
END_TEST

START_TEST(after_a_full_disk_writes_wait_for_the_home_for_a_while) {
    Fixture f;
    f.answer(f.ahead(), ENOSPC);
    ck_assert_int_eq(f.ask(FUSE_FLUSH), ENOSPC);
    bool ahead = true;
    f.slots.drop(f.write(ahead));
    ck_assert(!ahead);
    f.now += WriteBehind::careful_ns;
    f.write(ahead);
    ck_assert(ahead);
}
END_TEST

START_TEST(so_many_writes_are_under_way_and_no_more) {
    Fixture f;
    bool ahead = true;
    std::vector<uint32_t> under_way;
    while (ahead) under_way.push_back(f.write(ahead, 100));
    ck_assert_uint_eq(under_way.size(), slots - WriteBehind::left_to_others + 1);
    ck_assert_int_eq(f.ask(FUSE_FLUSH), -1);  // others have room
    under_way.pop_back();
    for (const uint32_t n : under_way) f.answer(n, 0, 100);
    // Errors that nobody has heard take room, too: each file keeps its own.
    Fixture g;
    for (uint64_t of = 1; of <= Slots::failed_max; ++of) g.answer(g.ahead(of), EIO);
    g.write(ahead, 4096, Slots::failed_max + 1);
    ck_assert(!ahead);
    for (uint64_t of = 1; of <= Slots::failed_max; ++of)
        ck_assert_int_eq(g.ask(FUSE_FLUSH, of), EIO);
}
END_TEST

START_TEST(a_write_without_room_is_answered_when_one_before_it_is_at_home) {
    constexpr uint32_t size = 1000 << 10;
    Fixture f;
    std::vector<uint32_t> under_way;
    const auto fill = [&] {
        for (bool ahead = true; ahead;) under_way.push_back(f.write(ahead, size));
    };
    fill();
    const uint64_t waits = f.unique;
    const size_t before = f.told.size();
    f.answer(under_way.front(), 0, size);
    ck_assert_uint_eq(f.told.size(), before + 1);
    ck_assert(f.told.back().unique == waits && f.told.back().size == size);
    ck_assert_int_eq(f.ask(FUSE_FLUSH), -1);  // it is not at home
    for (size_t i = 1; i < under_way.size(); ++i) f.answer(under_way[i], 0, size);
    ck_assert_uint_eq(f.told.size(), before + 1);
    // A writer that the home itself has answered is not answered a second time.
    under_way.clear();
    fill();
    f.slots.drop(under_way.back());
    const size_t told = f.told.size();
    for (size_t i = 0; i + 1 < under_way.size(); ++i) f.answer(under_way[i], 0, size);
    ck_assert_uint_eq(f.told.size(), told);
    // After an error of a full disk, no write is answered ahead.
    under_way.clear();
    f.now += 10'000 * ms;
    fill();
    const size_t answered = f.told.size();
    f.answer(under_way.front(), ENOSPC, size);
    f.answer(under_way[1], 0, size);
    ck_assert_uint_eq(f.told.size(), answered);
}
END_TEST

START_TEST(the_window_grows_while_the_home_is_quick_and_shrinks_when_it_is_slow) {
    WriteWindow w;
    const uint64_t first = w.bytes();
    int64_t now = 1000 * ms;
    const auto round = [&](int64_t takes_ns) {
        uint64_t sent = 0;
        while (w.has_room(1 << 20)) w.sent(1 << 20), ++sent;
        now += takes_ns;
        for (; sent > 0; --sent) w.refused(), w.answered(1 << 20, now - takes_ns, now);
    };
    round(140 * ms);  // it carries little more than that in half of the time that is slow
    ck_assert_uint_eq(w.bytes(), 2 * first);
    for (int i = 0; i < 10; ++i) round(140 * ms);
    ck_assert_uint_eq(w.bytes(), WriteWindow::bytes_max);
    round(1000 * ms);
    ck_assert_uint_eq(w.bytes(), WriteWindow::bytes_max / 2);  // once for all that was under way
    for (int i = 0; i < 10; ++i) round(1000 * ms);
    ck_assert_uint_eq(w.bytes(), WriteWindow::bytes_min);
    ck_assert(w.has_room(1 << 20));
    WriteWindow idle;
    for (int i = 0; i < 100; ++i) idle.sent(100), idle.answered(100, now, now + ms);
    ck_assert_uint_eq(idle.bytes(), first);
}
END_TEST

START_TEST(one_round_trip_shows_the_window_how_much_a_link_carries) {
    // Megabytes that a link carries in a millisecond, after 10 ms each way.
    const auto after_one_round = [](double rate) {
        WriteWindow w;
        int64_t now = 1000 * ms, free_at = now;
        std::vector<int64_t> arrives;
        for (; w.has_room(1 << 20); w.sent(1 << 20)) {
            free_at += static_cast<int64_t>(ms / rate);
            arrives.push_back(free_at + 20 * ms);
        }
        for (const int64_t at : arrives) w.refused(), w.answered(1 << 20, now, at);
        return w.bytes();
    };
    ck_assert_uint_ge(after_one_round(1), 24 << 20);
    ck_assert_uint_le(after_one_round(0.01), 8 << 20);  // 10 MB a second: twice as much, no more
    WriteWindow after_others;  // nobody has sent what a client before has left
    after_others.refused();
    after_others.answered(1 << 20, 0, 20 * ms);
    ck_assert_uint_gt(after_others.bytes(), WriteWindow().bytes());
}
END_TEST

START_TEST(while_a_write_is_under_way_attributes_are_not_answered_from_before) {
    Fixture f;
    const auto lookup = lookup_request(5, "name");
    fuse_entry_out entry{};
    entry.nodeid = node;
    entry.attr.size = 3;
    Bytes said;
    put(said, fuse_out_header{});
    put(said, entry);
    const auto knows = [&] {
        Bytes out;
        return f.cache.answer(attributes_request(node), f.now, out);
    };
    f.cache.learn(lookup, said, Lease::file, f.now);
    ck_assert(knows());
    const uint32_t n = f.ahead();
    ck_assert(!knows());
    f.cache.learn(lookup, said, Lease::file, f.now);  // asked before the write
    ck_assert(!knows());
    f.answer(n);
    ck_assert(!knows());
    f.cache.learn(lookup, said, Lease::file, f.now);
    ck_assert(knows());
}
END_TEST

// A file that the job makes, as the home answers.
void make_file(Fixture& f, uint32_t flags = O_WRONLY) {
    fuse_create_in in{};
    in.flags = flags;
    const uint32_t n = f.take(FUSE_CREATE, in);
    f.slots.take(n, f.now);
    Bytes answer;
    put(answer, fuse_out_header{});
    fuse_entry_out entry{};
    entry.nodeid = node;
    entry.attr.mode = S_IFREG | 0644;
    entry.attr.nlink = 1;
    entry.attr.uid = entry.attr.gid = 100;
    put(answer, entry);
    put(answer, fuse_open_out{fh, 0, 0});
    (void)f.writes->as_told(n, answer, false);
    f.slots.drop(n);
}

// The slot of a change of attributes; `ahead`: whether it was answered.
uint32_t change(Fixture& f, const fuse_setattr_in& in, bool& ahead, uint32_t uid = 100) {
    const uint32_t n = f.take(FUSE_SETATTR, in);
    fuse_in_header head = f.slots.head(n);
    head.uid = uid;
    std::memcpy(f.slots.data(n), &head, sizeof head);
    ck_assert(!*f.writes->settles(n, f.now));
    f.slots.take(n, f.now);
    const size_t before = f.told.size();
    ck_assert(f.writes->taken(n, f.now, true).has_value());
    ahead = f.told.size() > before;
    return n;
}

fuse_setattr_in setting(uint32_t valid) {
    fuse_setattr_in in{};
    in.valid = valid;
    in.mode = 0600;
    in.uid = in.gid = 100;
    return in;
}

START_TEST(of_a_file_that_is_being_made_mode_and_times_are_answered_ahead) {
    Fixture f;
    bool ahead = false;
    f.slots.drop(change(f, setting(FATTR_MODE), ahead));
    ck_assert(!ahead);  // it is not known here
    make_file(f);
    const uint32_t n =
        change(f, setting(FATTR_MODE | FATTR_MTIME | FATTR_ATIME | FATTR_UID | FATTR_GID), ahead);
    ck_assert(ahead);
    ck_assert_int_eq(f.ask(FUSE_FLUSH), -1);
    Bytes said;
    put(said, fuse_out_header{0, -EPERM, 0});
    ck_assert(f.writes->took(n, said, f.now));
    ck_assert_int_eq(f.asked_home(FUSE_FLUSH), EPERM);  // the open file that made it hears
    ck_assert_int_eq(f.asked_home(FUSE_FLUSH), 0);
}
END_TEST

START_TEST(what_may_be_refused_or_is_not_known_is_asked) {
    fuse_setattr_in other = setting(FATTR_UID);
    other.uid = 101;
    fuse_setattr_in set_id = setting(FATTR_MODE);
    set_id.mode = 04755;
    for (const fuse_setattr_in& in : {other, set_id, setting(FATTR_SIZE), setting(FATTR_CTIME),
                                      setting(FATTR_MODE | FATTR_KILL_SUIDGID)}) {
        Fixture f;
        make_file(f);
        bool ahead = true;
        f.slots.drop(change(f, in, ahead));
        ck_assert_msg(!ahead, "%x", in.valid);
        f.slots.drop(change(f, setting(FATTR_MODE), ahead));
        ck_assert(!ahead);  // its attributes are not known any more
    }
    Fixture f;
    make_file(f);
    bool ahead = true;
    f.slots.drop(change(f, setting(FATTR_MODE), ahead, 101));
    ck_assert(!ahead);  // not its owner
    make_file(f, O_RDONLY);
    f.slots.drop(change(f, setting(FATTR_MODE), ahead));
    ck_assert(!ahead);  // its close is not heard
}
END_TEST

START_TEST(what_changes_a_file_otherwise_ends_what_is_known_of_it) {
    for (const uint32_t opcode :
         {FUSE_FALLOCATE, FUSE_RENAME, FUSE_RENAME2, FUSE_UNLINK, FUSE_LINK, FUSE_COPY_FILE_RANGE,
          FUSE_SETXATTR, FUSE_FORGET, FUSE_FLUSH, FUSE_RELEASE}) {
        Fixture f;
        make_file(f);
        fuse_release_in in{};
        in.fh = fh;
        const uint32_t n = f.take(opcode, in);
        if (!*f.writes->settles(n, f.now)) {
            f.slots.take(n, f.now);
            ck_assert(f.writes->taken(n, f.now, true).has_value());
        }
        bool ahead = true;
        f.slots.drop(change(f, setting(FATTR_MODE), ahead));
        ck_assert_msg(!ahead, "%u", opcode);
    }
}
END_TEST

START_TEST(a_changed_file_is_as_long_as_what_was_written_to_it) {
    Fixture f;
    make_file(f);
    const uint32_t n = f.ahead();
    bool ahead = false;
    (void)change(f, setting(FATTR_MTIME), ahead);
    ck_assert(ahead);
    ck_assert_uint_eq(f.size_told, 4096);
    f.answer(n);
}
END_TEST

START_TEST(a_change_that_a_dead_client_meant_to_answer_is_answered_when_the_home_has) {
    Fixture f;
    make_file(f);
    bool ahead = false;
    const uint32_t n = change(f, setting(FATTR_MTIME), ahead);
    ck_assert(ahead);
    f.told.clear();
    f.begin();
    ck_assert(f.told.empty());
    Bytes said;
    put(said, fuse_out_header{sizeof(fuse_out_header), 0, f.unique});
    ck_assert(f.writes->took(n, said, f.now));
    ck_assert(f.told.size() == 1 && f.told[0].unique == f.unique);
}
END_TEST

START_TEST(an_open_for_writing_hears_of_its_closes) {
    Fixture f;
    const auto flags_told = [&](uint32_t opcode, uint32_t flags) {
        fuse_create_in in{};
        in.flags = flags;
        const uint32_t n = f.take(opcode, in);
        f.slots.take(n, f.now);
        Bytes answer;
        put(answer, fuse_out_header{});
        if (opcode != FUSE_OPEN) put(answer, fuse_entry_out{});
        put(answer, fuse_open_out{fh, FOPEN_NOFLUSH | FOPEN_KEEP_CACHE, 0});
        const Bytes other = f.writes->as_told(n, answer, false);
        f.slots.drop(n);
        const Bytes& told = other.empty() ? answer : other;
        fuse_open_out opened{};
        std::memcpy(&opened, told.data() + told.size() - sizeof opened, sizeof opened);
        return opened.open_flags;
    };
    for (const uint32_t opcode : {FUSE_OPEN, FUSE_CREATE, FUSE_TMPFILE}) {
        ck_assert_uint_eq(flags_told(opcode, O_RDWR), FOPEN_KEEP_CACHE);
        ck_assert_uint_eq(flags_told(opcode, O_WRONLY | O_APPEND), FOPEN_KEEP_CACHE);
        ck_assert_uint_eq(flags_told(opcode, O_RDONLY), FOPEN_NOFLUSH | FOPEN_KEEP_CACHE);
    }
}
END_TEST

}  // namespace

UNIT_SUITE(files_ahead, a_write_is_answered_ahead_and_its_close_waits_until_the_home_has_it,
           what_is_synced_with_each_write_or_closed_unheard_is_not_answered_ahead,
           an_error_is_told_once_to_what_comes_next_of_that_open_file,
           what_waited_for_the_home_is_told_what_came_meanwhile,
           who_copies_a_descriptor_inside_takes_no_error_either,
           who_copies_a_descriptor_from_outside_waits_for_nothing_and_takes_no_error,
           errors_and_writes_outlive_the_client,
           a_write_that_is_not_whole_is_an_error_whatever_the_server_says,
           an_error_that_nobody_can_hear_is_forgotten,
           who_asks_whether_all_is_at_home_hears_when_it_is,
           after_a_full_disk_writes_wait_for_the_home_for_a_while,
           so_many_writes_are_under_way_and_no_more,
           a_write_without_room_is_answered_when_one_before_it_is_at_home,
           the_window_grows_while_the_home_is_quick_and_shrinks_when_it_is_slow,
           one_round_trip_shows_the_window_how_much_a_link_carries,
           while_a_write_is_under_way_attributes_are_not_answered_from_before,
           of_a_file_that_is_being_made_mode_and_times_are_answered_ahead,
           what_may_be_refused_or_is_not_known_is_asked,
           what_changes_a_file_otherwise_ends_what_is_known_of_it,
           a_changed_file_is_as_long_as_what_was_written_to_it,
           a_change_that_a_dead_client_meant_to_answer_is_answered_when_the_home_has,
           an_open_for_writing_hears_of_its_closes);

}  // namespace souk::files
