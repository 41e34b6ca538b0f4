// SPDX-License-Identifier: GPL-2.0-or-later
// A client of a home's files answers some requests by itself, and must ask the home for others.
#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include "agentd/files/cache.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using namespace souk::files;

namespace {

constexpr uint64_t directory = 5, file = 9;

struct Fixture {
    Cache cache;
    int64_t now = 1'000'000'000;

    template <class... T>
    static Bytes bytes_of(const T&... parts) {
        Bytes out;
        const auto add = [&out](const auto& part) {
            const auto* at = reinterpret_cast<const uint8_t*>(&part);
            out.insert(out.end(), at, at + sizeof part);
        };
        (add(parts), ...);
        return out;
    }
    static Bytes request(uint32_t opcode, uint64_t node, Bytes body, const char* name = nullptr) {
        fuse_in_header head{};
        head.opcode = opcode;
        head.nodeid = node;
        head.unique = 77;
        if (name) body.insert(body.end(), name, name + std::strlen(name) + 1);
        head.len = static_cast<uint32_t>(sizeof head + body.size());
        Bytes all = bytes_of(head);
        all.insert(all.end(), body.begin(), body.end());
        return all;
    }
    static Bytes answer(const Bytes& body, int error = 0) {
        fuse_out_header head{};
        head.error = error;
        Bytes all = bytes_of(head);
        all.insert(all.end(), body.begin(), body.end());
        return all;
    }
    static Bytes lookup(const char* name, uint64_t in = directory) {
        return request(FUSE_LOOKUP, in, {}, name);
    }
    void learn_name(const char* name, uint64_t node, uint64_t size = 3, bool leased = true) {
        fuse_entry_out entry{};
        entry.nodeid = node;
        entry.attr.size = size;
        cache.learn(lookup(name), answer(bytes_of(entry)), leased ? Lease::program : Lease::none,
                    now);
    }
    bool knows(const Bytes& asked) {
        Bytes out;
        return cache.answer(asked, now, out);
    }
    bool knows_name(const char* name) { return knows(lookup(name)); }
    bool knows_attributes(uint64_t node) {
        return knows(request(FUSE_GETATTR, node, bytes_of(fuse_getattr_in{})));
    }
    template <class T>
    void did(uint32_t opcode, uint64_t node, const T& in, const char* name = nullptr) {
        cache.learn(request(opcode, node, bytes_of(in), name), answer({}), Lease::none, now);
    }
    void opened(uint64_t node, uint64_t fh, uint32_t flags = O_RDONLY) {
        fuse_open_out out{};
        out.fh = fh;
        cache.learn(open_of(node, flags), answer(bytes_of(out)), Lease::program, now);
    }
    static Bytes open_of(uint64_t node, uint32_t flags = O_RDONLY) {
        return request(FUSE_OPEN, node, bytes_of(fuse_open_in{flags, 0}));
    }
    static Bytes release_of(uint64_t node, uint64_t fh) {
        fuse_release_in in{};
        in.fh = fh;
        return request(FUSE_RELEASE, node, bytes_of(in));
    }
    uint64_t forwarded(uint64_t node, uint64_t count) {
        Bytes asked = request(FUSE_FORGET, node, bytes_of(fuse_forget_in{count}));
        if (!cache.forgotten(asked.data(), asked.size())) return 0;
        fuse_forget_in left{};
        std::memcpy(&left, asked.data() + sizeof(fuse_in_header), sizeof left);
        return left.nlookup;
    }
    uint64_t unwanted() {
        uint64_t node = 0;
        return cache.take_unwanted(node, now);
    }
};

START_TEST(what_is_leased_is_answered_until_it_is_recalled_or_old) {
    Fixture f;
    ck_assert(!f.knows_name("a"));
    f.learn_name("a", file, 3, false);
    ck_assert(!f.knows_name("a"));  // not leased
    f.learn_name("a", file);
    f.learn_name("none", 0);
    ck_assert(f.knows_name("a") && f.knows_name("none") && f.knows_attributes(file));
    ck_assert(!f.knows_name("b"));
    Bytes out;
    ck_assert(f.cache.answer(Fixture::lookup("a"), f.now, out));
    fuse_out_header head{};
    fuse_entry_out entry{};
    ck_assert_uint_eq(out.size(), sizeof head + sizeof entry);
    std::memcpy(&head, out.data(), sizeof head);
    std::memcpy(&entry, out.data() + sizeof head, sizeof entry);
    ck_assert(head.len == out.size() && head.unique == 77 && head.error == 0);
    ck_assert(entry.nodeid == file && entry.attr.size == 3);
    f.cache.recall(directory, "other");
    ck_assert(f.knows_name("a"));
    f.cache.recall(directory, "a");
    ck_assert(!f.knows_name("a") && !f.knows_attributes(file) && f.knows_name("none"));
    f.learn_name("a", file);
    f.cache.recall(directory, "");
    ck_assert(!f.knows_name("a") && !f.knows_name("none"));
    f.learn_name("a", file);
    f.cache.recall(0, "");
    ck_assert(!f.knows_name("a"));
    f.learn_name("a", file);
    f.now += Cache::lease_ns;
    ck_assert(!f.knows_name("a") && !f.knows_attributes(file));
}
END_TEST

START_TEST(attributes_without_a_known_name_are_not_kept_as_no_recall_would_find_them) {
    Fixture f;
    const auto attributes = [&] {
        f.cache.learn(Fixture::request(FUSE_GETATTR, file, Fixture::bytes_of(fuse_getattr_in{})),
                      Fixture::answer(Fixture::bytes_of(fuse_attr_out{})), Lease::program, f.now);
    };
    f.learn_name("a", file);
    f.did(FUSE_SETATTR, file, fuse_setattr_in{});
    attributes();
    ck_assert(f.knows_attributes(file));
    f.cache.recall(directory, "a");
    attributes();  // of a descriptor that is still open
    ck_assert(!f.knows_attributes(file));
    f.learn_name("a", file + 1);  // another file has the name
    attributes();
    ck_assert(!f.knows_attributes(file));
}
END_TEST

START_TEST(a_name_that_leads_to_another_file_now_does_not_lead_to_the_old_one) {
    Fixture f;
    f.learn_name("a", file);
    f.learn_name("b", file);  // renamed at home
    ck_assert(f.knows_name("b") && !f.knows_name("a"));
}
END_TEST

// The server answers in order, so what it said before a change is learnt before that is done.
START_TEST(what_the_job_changes_itself_is_asked_for_again) {
    const auto after = [](auto change, auto is_known) {
        Fixture f;
        f.learn_name("a", file);
        f.learn_name("new", 0);
        change(f);
        return is_known(f);
    };
    const auto a = [](Fixture& f) { return f.knows_name("a"); };
    const auto new_one = [](Fixture& f) { return f.knows_name("new"); };
    const auto size = [](Fixture& f) { return f.knows_attributes(file); };
    ck_assert(!after(
        [](Fixture& f) {
            f.cache.learn(Fixture::request(FUSE_UNLINK, directory, {}, "a"), Fixture::answer({}),
                          Lease::none, f.now);
        },
        a));
    ck_assert(!after([](Fixture& f) { f.did(FUSE_CREATE, directory, fuse_create_in{}, "new"); },
                     new_one));
    ck_assert(
        !after([](Fixture& f) { f.did(FUSE_MKDIR, directory, fuse_mkdir_in{}, "new"); }, new_one));
    ck_assert(!after([](Fixture& f) { f.did(FUSE_WRITE, file, fuse_write_in{}); }, size));
    ck_assert(!after([](Fixture& f) { f.did(FUSE_SETATTR, file, fuse_setattr_in{}); }, size));
    ck_assert(!after([](Fixture& f) { f.did(FUSE_SETATTR, file, fuse_setattr_in{}); }, a));
    const auto moved = [](Fixture& f) {
        Bytes body = Fixture::bytes_of(fuse_rename2_in{directory, 0, 0});
        for (const char c : std::string_view("a\0new\0", 6))
            body.push_back(static_cast<uint8_t>(c));
        f.cache.learn(Fixture::request(FUSE_RENAME2, directory, body), Fixture::answer({}),
                      Lease::none, f.now);
    };
    ck_assert(!after(moved, a) && !after(moved, new_one));
    const auto linked = [](Fixture& f) { f.did(FUSE_LINK, directory, fuse_link_in{file}, "new"); };
    ck_assert(!after(linked, new_one) && !after(linked, size));
    fuse_copy_file_range_in copy{};
    copy.nodeid_out = file;
    ck_assert(!after([&](Fixture& f) { f.did(FUSE_COPY_FILE_RANGE, 3, copy); }, size));
    ck_assert(after([](Fixture& f) { f.did(FUSE_READ, file, fuse_read_in{}); }, size));
}
END_TEST

START_TEST(the_server_hears_of_the_references_that_it_gave_and_no_others) {
    Fixture f;
    f.learn_name("a", file);  // 1, the server's
    for (int i = 0; i < 3; ++i) ck_assert(f.knows_name("a"));
    ck_assert_uint_eq(f.forwarded(file, 2), 0);
    ck_assert(f.knows_name("a"));  // 1 + 2 more
    ck_assert_uint_eq(f.forwarded(file, 3), 1);
    ck_assert(!f.knows_name("a"));  // the server may have forgotten it
    ck_assert_uint_eq(f.forwarded(1234, 5), 5);
    f.learn_name("a", file);
    ck_assert(f.knows_name("a"));
    fuse_batch_forget_in batch{};
    batch.count = 2;
    Bytes asked =
        Fixture::request(FUSE_BATCH_FORGET, 0,
                         Fixture::bytes_of(batch, fuse_forget_one{file, 2}, fuse_forget_one{4, 1}));
    ck_assert(f.cache.forgotten(asked.data(), asked.size()));
    fuse_forget_one left[2];
    std::memcpy(left, asked.data() + sizeof(fuse_in_header) + sizeof batch, sizeof left);
    ck_assert(left[0].nlookup == 1 && left[1].nlookup == 1);
}
END_TEST

START_TEST(a_closed_file_stays_open_for_the_next_who_reads_it) {
    Fixture f;
    f.learn_name("a", file);
    f.opened(file, 40);
    ck_assert(!f.knows(Fixture::open_of(file)));  // somebody has it
    ck_assert(!f.knows(Fixture::release_of(file, 41)));
    ck_assert(f.knows(Fixture::release_of(file, 40)));
    ck_assert(!f.knows(Fixture::open_of(file, O_RDWR)) &&
              !f.knows(Fixture::open_of(file, O_RDONLY | O_TRUNC)));
    ck_assert(f.knows(Fixture::open_of(file)));
    ck_assert(!f.knows(Fixture::open_of(file)));
    ck_assert_uint_eq(f.unwanted(), 0);
    // The file changes while it is open. It is closed at home when it is closed here.
    f.cache.recall(directory, "a");
    ck_assert(!f.knows(Fixture::release_of(file, 40)));
    ck_assert_uint_eq(f.unwanted(), 0);
    // The file changes while it waits for its next reader. It is closed at home at once.
    f.learn_name("a", file);
    f.opened(file, 42);
    ck_assert(f.knows(Fixture::release_of(file, 42)));
    f.cache.recall(directory, "a");
    ck_assert(!f.knows(Fixture::open_of(file)));
    ck_assert_uint_eq(f.unwanted(), 42);
    ck_assert_uint_eq(f.unwanted(), 0);
}
END_TEST

START_TEST(no_more_is_kept_than_may_be) {
    Fixture f;
    for (uint64_t n = 0; n < Cache::parked_max + 10; ++n) {
        f.learn_name(std::to_string(n).c_str(), 100 + n);
        f.opened(100 + n, n + 1);
        ck_assert(f.knows(Fixture::release_of(100 + n, n + 1)));
    }
    size_t closed = 0;
    while (f.unwanted() != 0) ++closed;
    ck_assert_uint_eq(closed, 10);
    for (uint64_t n = 0; n < Cache::lines_max; ++n)
        f.learn_name(std::to_string(n).c_str(), 100 + n);
    ck_assert_uint_le(f.cache.lines(), Cache::lines_max + 2);
}
END_TEST

START_TEST(attributes_that_the_server_does_not_have_are_not_asked_for) {
    Fixture f;
    const auto asks = [&](const char* name) {
        return !f.knows(
            Fixture::request(FUSE_GETXATTR, file, Fixture::bytes_of(fuse_getxattr_in{}), name));
    };
    ck_assert(!asks("security.selinux") && !asks("security.capability") && !asks("trusted.x"));
    ck_assert(f.knows(Fixture::request(FUSE_IOCTL, file, Bytes(sizeof(fuse_ioctl_in)))));
    ck_assert(asks("user.souk") && asks("system.posix_acl_access"));
}
END_TEST

// Every prefix of every kind of request: nothing beyond its end is read.
START_TEST(a_request_cut_short_is_the_servers_to_refuse) {
    Fixture f;
    f.learn_name("a", file);
    const Bytes whole = Fixture::request(FUSE_RENAME2, directory, Bytes(40, 1), "a");
    for (uint32_t opcode = 0; opcode < 60; ++opcode)
        for (size_t n = 0; n <= whole.size(); ++n) {
            Bytes cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(n));
            if (n >= sizeof(fuse_in_header))
                std::memcpy(cut.data() + offsetof(fuse_in_header, opcode), &opcode, sizeof opcode);
            Bytes out;
            (void)f.cache.answer(cut, f.now, out);
            f.cache.learn(cut, Fixture::answer(Bytes(n % 200, 1)), Lease::program, f.now);
            if (opcode == FUSE_FORGET || opcode == FUSE_BATCH_FORGET)
                (void)f.cache.forgotten(cut.data(), cut.size());
        }
    ck_assert_uint_lt(f.cache.lines(), 1000);
}
END_TEST

}  // namespace

START_TEST(what_the_kernel_has_from_here_it_is_told_to_forget) {
    Fixture f;
    const std::vector<uint64_t> one{file}, none;
    f.learn_name("a", file);
    f.cache.recall(directory, "other");
    f.cache.recall(directory, "a", true);
    ck_assert(f.cache.take_stale() == one);
    ck_assert(!f.knows_attributes(file) && !f.knows_name("a"));
    f.cache.recall(directory, "a", true);  // nothing is known of it since
    ck_assert(f.cache.take_stale() == none);
    f.learn_name("a", file);
    f.cache.recall(directory, "a");
    ck_assert(f.cache.take_stale() == one);
    f.learn_name("a", file);
    f.cache.recall(0, "");
    ck_assert(f.cache.take_stale() == one);
}
END_TEST

START_TEST(a_file_that_is_no_program_is_known_for_less_long) {
    Fixture f;
    fuse_entry_out entry{};
    entry.nodeid = file;
    f.cache.learn(Fixture::lookup("a"), Fixture::answer(Fixture::bytes_of(entry)), Lease::file,
                  f.now);
    f.now += Cache::own_lease_ns - 1;
    ck_assert(f.knows_name("a") && f.knows_attributes(file));
    f.now += 1;
    ck_assert(!f.knows_name("a") && !f.knows_attributes(file));
}
END_TEST

UNIT_SUITE(files_cache, what_the_kernel_has_from_here_it_is_told_to_forget,
           a_file_that_is_no_program_is_known_for_less_long,
           what_is_leased_is_answered_until_it_is_recalled_or_old,
           attributes_without_a_known_name_are_not_kept_as_no_recall_would_find_them,
           a_name_that_leads_to_another_file_now_does_not_lead_to_the_old_one,
           what_the_job_changes_itself_is_asked_for_again,
           the_server_hears_of_the_references_that_it_gave_and_no_others,
           a_closed_file_stays_open_for_the_next_who_reads_it, no_more_is_kept_than_may_be,
           attributes_that_the_server_does_not_have_are_not_asked_for,
           a_request_cut_short_is_the_servers_to_refuse);
