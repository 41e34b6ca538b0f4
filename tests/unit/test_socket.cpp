// SPDX-License-Identifier: GPL-2.0-or-later
// Listeners, connects, watches and addresses, against real sockets of this process.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "kernel/sys/net/descriptors.hpp"
#include "tests/unit/loop_fixture.hpp"
#include "tests/unit/temp_dir.hpp"

using namespace souk;
using namespace souk::unit;

START_TEST(a_listener_without_descriptors_backs_off_and_serves_when_there_are_some_again) {
    Loop loop = open_loop();
    auto listening = listen_stream(*Address::parse("127.0.0.1:0"));
    OK(listening);
    auto bound = Address::local(listening->get());
    std::vector<Fd> accepted;
    std::vector<std::string> troubles;
    auto listener = loop.listen(
        std::move(*listening), [&](Fd fd) { accepted.push_back(std::move(fd)); },
        [&](const Error& error) { troubles.push_back(error.message); });
    Fd peer(socket(AF_INET, SOCK_STREAM, 0));
    std::vector<Fd> hoard;  // every descriptor that is left
    rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = 64;
    setrlimit(RLIMIT_NOFILE, &files);
    for (int fd; (fd = open("/dev/null", O_RDONLY)) >= 0;) hoard.emplace_back(fd);
    ck_assert_int_eq(errno, EMFILE);
    ck_assert_int_eq(connect(peer.get(), bound->raw(), bound->raw_bytes()), 0);
    UNTIL(loop, troubles.size() == 2);  // 50 ms, then 100 ms: no spinning
    ck_assert_text(troubles[0], "accept: Too many open files");
    ck_assert_uint_lt(loop.stats().iterations, 20);
    hoard.clear();
    UNTIL(loop, accepted.size() == 1);
}
END_TEST

START_TEST(connecting_fails_in_time_and_says_where_to) {
    Loop loop = open_loop();
    std::string said;
    int code = 0, calls = 0;
    auto done = [&](Result<Fd> fd) {
        ck_assert(!fd);
        said = fd.error().message;
        code = fd.error().code;
        ++calls;
    };
    // Nobody listens.
    auto listening = listen_stream(*Address::parse("127.0.0.1:0"));
    const Address gone = *Address::local(listening->get());
    listening->reset();
    auto connect = loop.connect(gone, limit, done);
    UNTIL(loop, calls == 1);
    ck_assert_text(said, "connect to " + gone.text() + ": Connection refused");
    // A listener whose backlog is full and that never accepts: TCP and unix.
    auto full = listen_stream(*Address::parse("127.0.0.1:0"), 0);
    const Address full_address = *Address::local(full->get());
    auto full_unix =
        listen_stream(*Address::parse("unix:@souk-test-full-" + std::to_string(getpid())), 0);
    const Address full_unix_address = *Address::local(full_unix->get());
    for (const Address& address : {full_address, full_unix_address}) {
        std::vector<Connect> attempts;
        const int before = calls;
        int connected = 0;
        for (int i = 0; i < 6; ++i) {
            auto attempt = loop.connect(address, Nanos::from_ms(60), [&](Result<Fd> fd) {
                if (fd)
                    ++connected;
                else
                    done(std::move(fd));
            });
            OK(attempt);
            attempts.push_back(std::move(*attempt));
        }
        UNTIL(loop, calls - before + connected == 6);
        ck_assert_int_ge(calls - before, 3);
        ck_assert_int_eq(code, ETIMEDOUT);
        ck_assert_text(said, "connect to " + address.text() + ": Connection timed out");
    }
    // Dropped before it ends: never called, and nothing stays behind.
    const int before = calls;
    { auto dropped = loop.connect(full_address, limit, done); }
    UNTIL(loop, loop.objects() <= 1);  // the first handle is still held
    ck_assert_int_eq(calls, before);
}
END_TEST

START_TEST(a_watch_reports_readiness_as_long_as_it_lasts_and_pauses) {
    Loop loop = open_loop();
    const Fd event(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
    int reports = 0;
    auto watch = loop.watch(event.get(), POLLIN, [&](short ready) {
        ck_assert_int_eq(ready, POLLIN);
        if (++reports == 3) {  // level-triggered: twice nothing was read
            uint64_t value;
            ck_assert_int_eq(read(event.get(), &value, sizeof value), 8);
        }
    });
    OK(watch);
    UNTIL(loop, reports == 3);
    OK(loop.run_until([] { return false; }, Nanos::from_ms(5)));
    ck_assert_int_eq(reports, 3);
    watch->set_events(0);
    const uint64_t one = 1;
    ck_assert_int_eq(write(event.get(), &one, sizeof one), 8);
    OK(loop.run_until([] { return false; }, Nanos::from_ms(5)));
    ck_assert_int_eq(reports, 3);
    watch->set_events(POLLIN);
    UNTIL(loop, reports == 4);
    watch->close();
    UNTIL(loop, loop.objects() == 0);
}
END_TEST

START_TEST(a_process_that_ends_is_told_once_by_its_pidfd) {
    Loop loop = open_loop();
    auto hold = make_pipe();
    OK(hold);
    const pid_t pid = fork();
    if (pid == 0) {
        char c;
        close(hold->write_end.release());
        _exit(read(hold->read_end.get(), &c, 1) == 1 ? 7 : 1);
    }
    auto pidfd = Pidfd::open(pid);
    OK(pidfd);
    int exits = 0;
    auto watch = loop.on_exit(pidfd->get(), [&] { ++exits; });
    OK(watch);
    OK(loop.run_until([] { return false; }, Nanos::from_ms(5)));
    ck_assert_int_eq(exits, 0);
    ck_assert_int_eq(write(hold->write_end.get(), "x", 1), 1);
    UNTIL(loop, exits == 1);
    OK(loop.run_until([] { return false; }, Nanos::from_ms(5)));
    ck_assert_int_eq(exits, 1);
    auto status = pidfd->reap();
    OK(status);
    ck_assert_int_eq(WEXITSTATUS(*status), 7);
}
END_TEST

START_TEST(who_connected_a_unix_socket_is_known) {
    auto [a, b] = pair_of_sockets();
    auto cred = peer_cred(a.get());
    OK(cred);
    ck_assert_int_eq(cred->pid, getpid());
    ck_assert_uint_eq(cred->uid, geteuid());
}
END_TEST

START_TEST(addresses_are_read_and_written_exactly) {
    for (const char* text :
         {"127.0.0.1:7000", "[::1]:7000", "unix:/run/x.sock", "unix:@souk", "0.0.0.0:0"})
        ck_assert_text(Address::parse(text)->text(), text);
    ck_assert_text(Address::parse("/run/x.sock")->text(), "unix:/run/x.sock");
    ck_assert_text(Address::parse("7000").error().message,
                   "the address '7000' is not HOST:PORT or unix:PATH");
    ck_assert_text(Address::parse("::1:70").error().message,
                   "the address '::1:70' needs brackets around its IPv6 host: [HOST]:PORT");
    ck_assert_text(Address::parse("1.2.3.4:70000").error().message,
                   "the address '1.2.3.4:70000' has no port from 0 to 65535");
    ck_assert_text(Address::parse("1.2.3.4:").error().message,
                   "the address '1.2.3.4:' has no port from 0 to 65535");
    ck_assert_text(Address::parse("here:70").error().message,
                   "the host 'here' is not a numeric address");
    ck_assert_text(Address::parse("unix:").error().message, "a unix socket needs a path");
    ck_assert(!Address::parse("unix:" + std::string(108, 'x')));
    ck_assert(Address::parse("unix:/" + std::string(106, 'x')).has_value());
}
END_TEST

START_TEST(a_socket_file_of_a_dead_process_is_replaced_and_one_in_use_is_not) {
    const unit::TempDir dir;
    const std::string path = dir.path + "/s";
    auto address = Address::parse(path);
    {
        auto first = listen_stream(*address);
        OK(first);
        auto second = listen_stream(*address);
        ck_assert(!second);
        ck_assert_text(second.error().message,
                       "another process listens on unix:" + path + ": Address already in use");
    }
    auto third = listen_stream(*address);  // the file is still there
    OK(third);
    unlink(path.c_str());
    const Fd file(open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    auto fourth = listen_stream(*address);
    ck_assert(!fourth);
    ck_assert_text(fourth.error().message, path + " exists and is not a socket");
}
END_TEST

START_TEST(a_socket_that_only_somebody_else_holds_still_is_replaced) {
    const unit::TempDir dir;
    auto address = Address::parse(dir.path + "/s");
    const Fd held(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ck_assert(::bind(held.get(), address->raw(), address->raw_bytes()) == 0);
    Pipe listening = std::move(*make_pipe());
    const pid_t listens = ::fork();
    if (listens == 0) {
        if (::listen(held.get(), 8) != 0 || ::write(listening.write_end.get(), "l", 1) != 1)
            ::_exit(1);
        ::pause();
    }
    char letter = 0;
    ck_assert(::read(listening.read_end.get(), &letter, 1) == 1);
    ck_assert(!listen_stream(*address));
    ck_assert(::kill(listens, SIGKILL) == 0);
    ck_assert(::waitpid(listens, nullptr, 0) == listens);
    OK(listen_stream(*address));
}
END_TEST

START_TEST(descriptors_come_along_with_a_packet_as_many_as_were_sent) {
    int ends[2];
    ck_assert(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    Fd here(ends[0]);
    const Fd there(ends[1]);
    char room[8];
    const auto none = receive_descriptors(there.get(), room);
    ck_assert(none && !*none);
    const Pipe pipe = *make_pipe();
    for (const size_t count : {size_t{0}, size_t{1}, descriptors_max}) {
        const std::vector<int> sent(count, pipe.write_end.get());
        ck_assert(*send_descriptors(here.get(), "hello", sent));
        const auto came = *receive_descriptors(there.get(), room);
        ck_assert(came && came->bytes == 5 && !came->truncated);
        ck_assert_text(std::string(room, 5), "hello");
        ck_assert_uint_eq(came->descriptors.size(), count);
        for (const Fd& fd : came->descriptors) {
            ck_assert(::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC);
            char letter = 0;
            ck_assert(::write(fd.get(), "x", 1) == 1 &&
                      ::read(pipe.read_end.get(), &letter, 1) == 1 && letter == 'x');
        }
    }
    const std::vector<int> many(descriptors_max + 1, pipe.write_end.get());
    ck_assert_int_eq(send_descriptors(here.get(), "hello", many).error().code, EINVAL);
    ck_assert(*send_descriptors(here.get(), "longer than the room", {}));
    ck_assert((*receive_descriptors(there.get(), room))->truncated);
    while (*send_descriptors(here.get(), "x", {})) {
    }
    while (*receive_descriptors(there.get(), room)) {
    }
    here.reset();
    ck_assert((*receive_descriptors(there.get(), room))->bytes == 0);
}
END_TEST

UNIT_SUITE(socket, descriptors_come_along_with_a_packet_as_many_as_were_sent,
           a_listener_without_descriptors_backs_off_and_serves_when_there_are_some_again,
           connecting_fails_in_time_and_says_where_to,
           a_watch_reports_readiness_as_long_as_it_lasts_and_pauses,
           a_process_that_ends_is_told_once_by_its_pidfd, who_connected_a_unix_socket_is_known,
           addresses_are_read_and_written_exactly,
           a_socket_file_of_a_dead_process_is_replaced_and_one_in_use_is_not,
           a_socket_that_only_somebody_else_holds_still_is_replaced);
