// SPDX-License-Identifier: GPL-2.0-or-later
// A job has files open on one node, and its client on the next node must be told of them.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agentd/files/expected.hpp"
#include "agentd/files/own_requests.hpp"
#include "agentd/files/session.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

namespace souk::files {
namespace {

// A home with the sessions of the node where a job is and of the one where it goes.
struct Home {
    unit::TempDir dir;
    Export tree = *open_export(dir.path, {}, {});
    Fd notify = Watches::make_instance(::getuid());
    Watches watches{std::move(notify)};
    Session here{tree, {}, &watches, 1}, there{tree, {}, &watches, 2};

    template <class Body>
    static Body answer_of(Session& session, const Bytes& request, Body body = {}) {
        Bytes out;
        session.handle(request, out);
        ck_assert_uint_eq(out.size(), sizeof(fuse_out_header) + sizeof body);
        std::memcpy(&body, out.data() + sizeof(fuse_out_header), sizeof body);
        return body;
    }
    void opens(const std::string& path, uint32_t flags) {
        uint64_t node = FUSE_ROOT_ID;
        for (size_t at = 0; at < path.size();) {
            const size_t end = std::min(path.find('/', at), path.size());
            node = answer_of<fuse_entry_out>(here, lookup_request(node, path.substr(at, end - at)))
                       .nodeid;
            at = end + 1;
        }
        (void)answer_of<fuse_open_out>(here, open_request(node, flags));
    }
    void make(const std::string& name) const { (void)dir.write(name, "text"); }
};

// The client there, and what it asks.
struct Client {
    Fd memory = std::move(*Slots::make());
    Slots slots = std::move(*Slots::open(memory.get()));
    Cache cache;
    Upstream upstream{slots};
    Expected expected{slots, cache, upstream};
    Fd server;
    int64_t now = 1'000'000'000;

    Client() {
        int pair[2];
        ck_assert_int_eq(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        server = Fd(pair[1]);
        ck_assert(upstream.connect(Fd(pair[0]), {}).has_value());
        Bytes greeting;
        put(greeting, Head{sizeof(Welcome), Kind::welcome, 0, 0});
        put(greeting, Welcome{});
        ck_assert(::write(server.get(), greeting.data(), greeting.size()) ==
                  ssize_t(greeting.size()));
        ck_assert(
            upstream.receive([] {}, [](const Talk::Message&) { return Status{}; }).has_value());
        char hello[256];
        (void)::read(server.get(), hello, sizeof hello);
    }
    void hear_of(Home& home) {
        home.there.open_as(home.here, [&](ByteView request, ByteView answer, Lease lease) {
            Bytes both(request.begin(), request.end());
            both.insert(both.end(), answer.begin(), answer.end());
            expected.told(both, lease, now);
            return true;
        });
    }
    // The names that are asked for, of that list; an open is a `+`.
    std::string asks(const std::string& list) {
        expected.begin(list, true);
        expected.ask(now);
        ck_assert(upstream.send().has_value());
        std::string all;
        Talk talk;
        for (;;) {
            const ssize_t n = ::recv(server.get(), talk.room(), talk.room_bytes(), MSG_DONTWAIT);
            if (n <= 0) return all;
            talk.took(static_cast<size_t>(n));
            const auto message = *talk.next();
            if (!message || message->head.kind != Kind::request) continue;
            fuse_in_header head{};
            std::memcpy(&head, message->body.data(), sizeof head);
            const auto* const name =
                reinterpret_cast<const char*>(message->body.data() + sizeof head);
            all += head.opcode == FUSE_OPEN ? "+" : std::string(name) + " ";
        }
    }
};

std::string line(const std::string& flags, const std::string& path) {
    return flags + " " + path + std::string(1, '\0');
}

START_TEST(what_a_job_reads_is_known_and_open_where_it_goes_before_it_is_there) {
    Home home;
    UNIT_SKIP_IF(home.watches.fd() < 0 ? "no instance of inotify is to be had" : nullptr);
    ck_assert_int_eq(::mkdir((home.dir.path + "/d").c_str(), 0700), 0);
    home.make("d/read");
    home.make("d/twice");
    for (const char* path : {"d/read", "d/twice", "d/twice"}) home.opens(path, O_RDONLY);
    Client client;
    client.hear_of(home);
    ck_assert_uint_eq(home.there.open_files(), 3);
    const std::string list =
        line("100000", "/d/read") + line("100000", "/d/twice") + line("100000", "/d/twice");
    ck_assert_text(client.asks(list), "");
    // A list with one file more than the job has open is another list.
    ck_assert_text(client.asks(list + line("100000", "/d/twice")), "+");
    Client late;
    late.hear_of(home);
    late.now += 60'000'000'000;
    ck_assert_text(late.asks(list), "d ");
}
END_TEST

START_TEST(what_a_job_may_write_to_is_open_where_it_goes_and_its_length_is_asked_for) {
    Home home;
    home.make("log");
    home.make("both");
    home.opens("log", O_WRONLY | O_APPEND);
    home.opens("both", O_RDWR);
    home.opens("both", O_RDONLY);
    Client client;
    client.hear_of(home);
    ck_assert_uint_eq(home.there.open_files(), 3);
    ck_assert_text(client.asks(line("2001", "/log")), "log ");
    ck_assert_text(client.asks(line("2", "/both") + line("0", "/both")), "both ");
}
END_TEST

START_TEST(another_file_by_that_name_is_not_opened) {
    Home home;
    home.make("gone");
    home.make("replaced");
    home.opens("gone", O_RDONLY);
    home.opens("replaced", O_RDONLY);
    ck_assert_int_eq(::unlink((home.dir.path + "/gone").c_str()), 0);
    home.make("new");
    ck_assert_int_eq(
        ::rename((home.dir.path + "/new").c_str(), (home.dir.path + "/replaced").c_str()), 0);
    Client client;
    client.hear_of(home);
    ck_assert_uint_eq(home.there.open_files(), 0);
}
END_TEST

START_TEST(what_nobody_opens_is_given_back) {
    Home home;
    home.make("read");
    home.opens("read", O_RDONLY);
    Client client;
    client.hear_of(home);
    uint64_t node = 0;
    ck_assert_uint_eq(client.cache.take_unwanted(node, client.now + 20'000'000'000), 0);
    ck_assert_uint_ne(client.cache.take_unwanted(node, client.now + 31'000'000'000), 0);
    ck_assert_uint_ne(node, 0);
}
END_TEST

// The open file of that name which `there` has from open_as; 0: none.
uint64_t opened_as(Session& there, Session& here, std::string_view wanted) {
    uint64_t node = 0, number = 0;
    there.open_as(here, [&](ByteView request, ByteView answer, Lease) {
        fuse_in_header head{};
        fuse_entry_out entry{};
        fuse_open_out opened{};
        std::memcpy(&head, request.data(), sizeof head);
        const ByteView rest = answer.subspan(sizeof(fuse_out_header));
        if (head.opcode == FUSE_LOOKUP &&
            text_of(request.subspan(sizeof head)).starts_with(wanted)) {
            std::memcpy(&entry, rest.data(), sizeof entry);
            node = entry.nodeid;
        }
        if (head.opcode == FUSE_OPEN && head.nodeid == node) {
            std::memcpy(&opened, rest.data(), sizeof opened);
            number = opened.fh;
        }
        return true;
    });
    return number;
}

START_TEST(what_nobody_uses_is_opened_ahead_for_a_few_moves_and_no_more) {
    Home home;
    for (const char* name : {"read", "idle"}) {
        home.make(name);
        home.opens(name, O_RDONLY);
    }
    std::vector<std::unique_ptr<Session>> nodes;
    std::string open;
    for (uint64_t number = 3; number < 10; ++number) {
        Session& here = nodes.empty() ? home.here : *nodes.back();
        nodes.push_back(std::make_unique<Session>(home.tree, SessionLimits{}, nullptr, number));
        const uint64_t file = opened_as(*nodes.back(), here, "read");
        open += std::to_string(nodes.back()->open_files());
        fuse_in_header head{};
        fuse_read_in in{};
        in.fh = file;
        in.size = 4;
        head.opcode = FUSE_READ;
        head.len = sizeof head + sizeof in;
        Bytes read, answer;
        put(read, head);
        put(read, in);
        nodes.back()->handle(read, answer);
        ck_assert_uint_eq(answer.size(), sizeof(fuse_out_header) + 4);
    }
    ck_assert_text(open, "2221111");
}
END_TEST

START_TEST(what_is_told_and_makes_no_sense_is_not_believed) {
    Client client;
    client.expected.told({}, Lease::file, client.now);
    Bytes some = lookup_request(FUSE_ROOT_ID, "x");
    client.expected.told(some, Lease::file, client.now);  // no answer
    const uint32_t long_one = 1 << 20;
    std::memcpy(some.data(), &long_one, sizeof long_one);
    client.expected.told(some, Lease::file, client.now);
    ck_assert_uint_eq(client.cache.lines(), 0);
}
END_TEST

}  // namespace
}  // namespace souk::files

namespace souk {
using namespace souk::files;
UNIT_SUITE(files_moves, what_a_job_reads_is_known_and_open_where_it_goes_before_it_is_there,
           what_a_job_may_write_to_is_open_where_it_goes_and_its_length_is_asked_for,
           another_file_by_that_name_is_not_opened, what_nobody_opens_is_given_back,
           what_nobody_uses_is_opened_ahead_for_a_few_moves_and_no_more,
           what_is_told_and_makes_no_sense_is_not_believed);
}  // namespace souk
