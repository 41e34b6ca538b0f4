// SPDX-License-Identifier: GPL-2.0-or-later
// Files that are about to be looked up are asked for at once; the kernel is answered from here
// then.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "agentd/files/expected.hpp"
#include "agentd/files/unsynced.hpp"
#include "checkpoint/expected_files.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

namespace souk::files {
namespace {

template <class T>
void put_part(Bytes& out, const T& part) {
    const auto* at = reinterpret_cast<const uint8_t*>(&part);
    out.insert(out.end(), at, at + sizeof part);
}

// A server that notes what it is asked and answers by a rule: the number of a name's node is its
// length plus ten times its directory's number, and "none" is not there.
struct Fixture {
    Fd memory = *Slots::make();
    Slots slots = *Slots::open(memory.get());
    Cache cache;
    Upstream upstream{slots};
    Expected expected{slots, cache, upstream};
    Fd server;
    Talk talk;
    int64_t now = 1'000'000'000;
    uint64_t next_fh = 100;
    std::vector<std::string> asked;

    Fixture() {
        int pair[2];
        ck_assert_int_eq(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        server = Fd(pair[1]);
        ck_assert(upstream.connect(Fd(pair[0]), {}).has_value());
        say(Kind::welcome, 0, Welcome{});
        take_all();
        (void)heard();  // the greeting
    }
    template <class T>
    void say(Kind kind, uint64_t seq, const T& body, Lease lease = Lease::none) {
        Bytes out;
        put_part(out, Head{sizeof body, kind, seq, static_cast<uint64_t>(lease)});
        put_part(out, body);
        ck_assert_int_eq(::write(server.get(), out.data(), out.size()), ssize_t(out.size()));
    }
    struct Request {
        uint64_t seq;
        fuse_in_header head;
        Bytes rest;
    };
    std::optional<Request> heard() {
        for (;;) {
            uint8_t* const room = talk.room();
            const ssize_t n = ::recv(server.get(), room, talk.room_bytes(), MSG_DONTWAIT);
            if (n <= 0) return std::nullopt;
            talk.took(static_cast<size_t>(n));
            const auto message = *talk.next();
            if (!message) continue;
            if (message->head.kind != Kind::request) return std::nullopt;
            Request r{message->head.seq, {}, {}};
            std::memcpy(&r.head, message->body.data(), sizeof r.head);
            r.rest.assign(message->body.begin() + sizeof r.head, message->body.end());
            return r;
        }
    }
    // Runs one turn of the client. Returns how many requests the server got in it.
    size_t turn() {
        expected.ask(now);
        ck_assert(upstream.send().has_value());
        size_t some = 0;
        for (; const auto request = heard(); ++some) reply(*request);
        take_all();
        return some;
    }
    void reply(const Request& r) {
        struct {
            fuse_out_header head{};
            fuse_entry_out entry{};
        } named;
        struct {
            fuse_out_header head{};
            fuse_open_out opened{};
        } opened;
        if (r.head.opcode == FUSE_STATFS) {
            struct {
                fuse_out_header head{};
                fuse_statfs_out of{};
            } whole;
            asked.push_back("of " + std::to_string(r.head.nodeid));
            whole.head.len = sizeof whole;
            whole.of.st.bfree = r.head.nodeid;
            return say(Kind::answer, r.seq, whole);
        }
        if (r.head.opcode == FUSE_OPEN) {
            asked.push_back("open " + std::to_string(r.head.nodeid));
            opened.head.len = sizeof opened;
            opened.opened.fh = next_fh++;
            return say(Kind::answer, r.seq, opened);
        }
        const std::string name(reinterpret_cast<const char*>(r.rest.data()));
        asked.push_back(name);
        named.head.len = sizeof named;
        named.head.error = name == "none" ? -ENOENT : 0;
        named.entry.nodeid = r.head.nodeid * 10 + name.size();
        say(Kind::answer, r.seq, named, Lease::file);
    }
    void take_all() {
        const auto take = [this](const Talk::Message& m) -> Status {
            for (uint32_t n = 0; n < files::slots; ++n) {
                const Slot& slot = slots.at(n);
                if (slot.state != Slot::taken || slot.seq != m.head.seq) continue;
                ck_assert(expected.took(m.head.seq, {slots.data(n), slot.bytes}, m.body,
                                        static_cast<Lease>(m.head.acked), now));
                slots.drop(n);
            }
            return {};
        };
        ck_assert(upstream.receive([] {}, take).has_value());
    }
    uint64_t open(uint64_t node, uint32_t flags) {
        Bytes request, out;
        put_part(request, fuse_in_header{sizeof(fuse_in_header) + sizeof(fuse_open_in), FUSE_OPEN,
                                         7, node, 0, 0, 0, 0, 0});
        put_part(request, fuse_open_in{flags, 0});
        if (!cache.answer(request, now, out)) return 0;
        fuse_open_out opened{};
        std::memcpy(&opened, out.data() + sizeof(fuse_out_header), sizeof opened);
        return opened.fh;
    }
    bool knows(uint64_t directory, const char* name) {
        return cache.node_of(directory, name, now) != 0;
    }
};

std::string list(std::initializer_list<const char*> lines) {
    std::string text;
    for (const char* line : lines) text.append(line).push_back('\0');
    return text;
}

START_TEST(all_names_are_asked_for_at_once_directory_by_directory) {
    Fixture f;
    f.expected.begin(list({"0 /a/one", "2 /a/three", "0 /a/none/x", "0 /bb/one"}), false);
    ck_assert_uint_eq(f.turn(), 2);  // a, bb
    ck_assert_uint_eq(f.turn(), 4);
    ck_assert_uint_eq(f.turn(), 3);  // the file systems of those that are there
    ck_assert_uint_eq(f.turn(), 0);
    Bytes request, out;
    put_part(request, fuse_in_header{sizeof(fuse_in_header), FUSE_STATFS, 7, 113, 0, 0, 0, 0, 0});
    ck_assert(!f.cache.answer(request, f.now + 4'000'000'000, out));
    ck_assert(f.cache.answer(request, f.now, out));
    fuse_statfs_out of{};
    std::memcpy(&of, out.data() + sizeof(fuse_out_header), sizeof of);
    ck_assert_uint_eq(of.st.bfree, 113);
    ck_assert(f.expected.idle());
    ck_assert(f.knows(1, "a") && f.knows(11, "one") && f.knows(11, "three") && f.knows(12, "one"));
    // Names that are still known are not asked for again.
    f.expected.begin(list({"0 /a/one", "0 /a/two"}), false);
    ck_assert_uint_eq(f.turn(), 2);
    ck_assert(std::ranges::find(f.asked, "two") != f.asked.end());
}
END_TEST

START_TEST(what_is_to_be_opened_is_open_when_the_kernel_asks) {
    Fixture f;
    f.expected.begin(list({"0 /a", "100002 /a", "2 /a", "0 /none"}), true);
    while (f.turn() > 0) {
    }
    ck_assert_uint_eq(f.open(11, O_RDWR | O_TRUNC), 0);
    ck_assert_uint_eq(f.open(11, O_WRONLY), 0);
    const uint64_t one = f.open(11, O_RDWR), other = f.open(11, O_RDWR), read = f.open(11, 0);
    ck_assert(one != 0 && other != 0 && read != 0 && one != other && one != read);
    ck_assert_uint_eq(f.open(11, O_RDWR), 0);
    // Open files that no process wants are closed at home.
    f.expected.begin(list({"1 /a"}), true);
    while (f.turn() > 0) {
    }
    uint64_t node = 0;
    ck_assert_uint_eq(f.cache.take_unwanted(node, f.now), 0);
    f.now += 31'000'000'000;
    ck_assert(f.cache.take_unwanted(node, f.now) == 103 && node == 11);
    ck_assert_uint_eq(f.open(11, O_WRONLY), 0);
}
END_TEST

START_TEST(a_reference_that_the_kernel_never_had_is_given_back_with_its_own) {
    Fixture f;
    f.expected.begin(list({"0 /a"}), false);
    (void)f.turn();
    Bytes forget;
    put_part(forget, fuse_in_header{sizeof(fuse_in_header) + sizeof(fuse_forget_in), FUSE_FORGET, 0,
                                    11, 0, 0, 0, 0, 0});
    put_part(forget, fuse_forget_in{2});
    ck_assert(f.cache.forgotten(forget.data(), forget.size()));
    fuse_forget_in told{};
    std::memcpy(&told, forget.data() + sizeof(fuse_in_header), sizeof told);
    ck_assert_uint_eq(told.nlookup, 3);
}
END_TEST

START_TEST(the_kernel_has_room_beside_it_and_a_bad_list_asks_for_nothing) {
    Fixture f;
    std::string many;
    for (int i = 0; i < 500; ++i) many += list({("0 /f" + std::to_string(i)).c_str()});
    f.expected.begin(many, false);
    ck_assert_uint_eq(f.turn(), Expected::under_way_max);
    f.expected.begin(list({"", "0", "0 ", "0 relative", "x /a", "0 /../a", "9 /a"}) + "0 /unended",
                     true);
    ck_assert_uint_eq(f.turn(), 0);
    ck_assert(f.expected.idle());
}
END_TEST

// A home that answers each name with `entry`, and nothing else in full.
START_TEST(a_home_that_answers_nonsense_is_asked_for_no_more_than_the_list) {
    for (const uint64_t node : {uint64_t{0}, uint64_t{1}, UINT64_MAX}) {
        Fixture f;
        f.expected.begin(list({"0 /a/b/c/d", "0 /a/b/e", "2 /a"}), true);
        size_t asked = 0;
        for (int turn = 0; turn < 20 && !f.expected.idle(); ++turn) {
            f.expected.ask(f.now);
            ck_assert(f.upstream.send().has_value());
            while (const auto r = f.heard()) {
                ++asked;
                if (r->head.opcode != FUSE_LOOKUP) {
                    f.say(Kind::answer, r->seq, fuse_out_header{sizeof(fuse_out_header), 0, 0});
                    continue;
                }
                struct {
                    fuse_out_header head{};
                    fuse_entry_out entry{};
                } named;
                named.head.len = sizeof named;
                named.entry.nodeid = node;  // the same of all, its own directory's, or none
                f.say(Kind::answer, r->seq, named, Lease::file);
            }
            f.take_all();
        }
        ck_assert(f.expected.idle());
        ck_assert_uint_le(asked, node == 0 ? 1 : 5 + 3);  // names, and opens
        ck_assert_uint_eq(f.open(node, O_RDONLY), 0);
    }
}
END_TEST

Bytes asked_of(uint32_t opcode, uint64_t node, uint32_t pid, const Bytes& body = {}) {
    Bytes all;
    fuse_in_header head{};
    head.opcode = opcode;
    head.nodeid = node;
    head.pid = pid;
    put_part(all, head);
    all.insert(all.end(), body.begin(), body.end());
    return all;
}

START_TEST(what_was_not_changed_here_is_not_synced_from_outside_again) {
    constexpr uint32_t outside = 0, in_job = 7;
    const Bytes sync = asked_of(FUSE_FSYNC, 5, outside);
    Bytes good;
    put_part(good, fuse_out_header{sizeof(fuse_out_header), 0, 0});
    Unsynced files(true);
    ck_assert(files.is_synced(sync));
    ck_assert(!files.is_synced(asked_of(FUSE_FSYNC, 5, in_job)));
    ck_assert(!files.is_synced(asked_of(FUSE_FSYNCDIR, 5, outside)));
    for (const uint32_t opcode : {FUSE_WRITE, FUSE_SETATTR, FUSE_FALLOCATE, FUSE_SETXATTR}) {
        files.asked(asked_of(opcode, 5, in_job), 10);
        ck_assert(!files.is_synced(sync) && files.is_synced(asked_of(FUSE_FSYNC, 6, outside)));
        files.answered(asked_of(FUSE_FSYNC, 5, in_job), good, 9);  // of before
        ck_assert(!files.is_synced(sync));
        files.answered(asked_of(FUSE_FSYNC, 5, in_job), good, 11);
        ck_assert(files.is_synced(sync));
    }
    Bytes truncates, created = good;
    put_part(truncates, fuse_open_in{O_WRONLY | O_TRUNC, 0});
    files.asked(asked_of(FUSE_OPEN, 5, in_job, truncates), 12);
    ck_assert(!files.is_synced(sync));
    fuse_entry_out entry{};
    entry.nodeid = 8;
    put_part(created, entry);
    files.answered(asked_of(FUSE_CREATE, 1, in_job), created, 13);
    ck_assert(!files.is_synced(asked_of(FUSE_FSYNC, 8, outside)));
    // Forgotten, it comes back by another number: from now on each counts.
    files.asked(asked_of(FUSE_FORGET, 8, in_job), 0);
    ck_assert(!files.is_synced(asked_of(FUSE_FSYNC, 6, outside)));
    ck_assert(!Unsynced(false).is_synced(sync));
}
END_TEST

START_TEST(a_process_names_its_open_files_of_its_home_alone) {
    const unit::TempDir dir;
    const Fd file(::open(dir.write("f", "x").c_str(), O_RDWR | O_CLOEXEC));
    ck_assert(file && expected_files({{1, ::getpid()}}).empty());
    ck_assert(read_expected_files(dir.fd.get()).empty());
    save_expected_files(dir.fd.get(), "0 /a");
    ck_assert_text(read_expected_files(dir.fd.get()), "0 /a");
}
END_TEST

}  // namespace

UNIT_SUITE(files_expected, all_names_are_asked_for_at_once_directory_by_directory,
           what_is_to_be_opened_is_open_when_the_kernel_asks,
           a_reference_that_the_kernel_never_had_is_given_back_with_its_own,
           the_kernel_has_room_beside_it_and_a_bad_list_asks_for_nothing,
           a_home_that_answers_nonsense_is_asked_for_no_more_than_the_list,
           what_was_not_changed_here_is_not_synced_from_outside_again,
           a_process_names_its_open_files_of_its_home_alone);

}  // namespace souk::files
