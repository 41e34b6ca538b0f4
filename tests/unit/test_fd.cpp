// SPDX-License-Identifier: GPL-2.0-or-later
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "kernel/sys/fd.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;

namespace {
bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }
}  // namespace

START_TEST(an_fd_closes_what_it_owns_exactly_once) {
    Pipe pipe = *make_pipe();
    const int number = pipe.read_end.get();
    Fd moved = std::move(pipe.read_end);
    ck_assert(!pipe.read_end);
    ck_assert(is_open(number));
    ck_assert(::fcntl(number, F_GETFD) & FD_CLOEXEC);
    moved = Fd();
    ck_assert(!is_open(number));
    const int released = pipe.write_end.release();
    pipe.write_end.reset();
    ck_assert(is_open(released));
    ::close(released);
}
END_TEST

START_TEST(files_are_read_whole_and_an_error_names_the_path) {
    ck_assert_text(read_file(AT_FDCWD, "/proc/self/comm").value(), "unit\n");
    const auto missing = read_file(AT_FDCWD, "/proc/self/no-such");
    ck_assert(!missing);
    ck_assert_int_eq(missing.error().code, ENOENT);
    ck_assert(missing.error().message.find("/proc/self/no-such") != std::string::npos);
    ck_assert_int_eq(read_file(AT_FDCWD, "/proc/self/status", 10).error().code, EFBIG);
    ck_assert_int_eq(write_file(AT_FDCWD, "/proc/self/no-such", "x").error().code, ENOENT);
    Fd proc = std::move(*open_at(AT_FDCWD, "/proc/self", O_PATH | O_DIRECTORY));
    ck_assert(write_file(proc.get(), "comm", "renamed"));
    ck_assert_text(*read_file(proc.get(), "comm"), "renamed\n");
    const auto names = list_dir(proc.get(), "ns");
    ck_assert(names && std::find(names->begin(), names->end(), "pid") != names->end());
}
END_TEST

START_TEST(a_pidfd_signals_waits_and_reaps) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::pause();
        ::_exit(0);
    }
    Pidfd pidfd = std::move(*Pidfd::open(child));
    ck_assert(!*pidfd.exited_within(Nanos{0}));
    ck_assert_int_eq(pidfd.reap().error().code, EAGAIN);
    ck_assert(pidfd.signal(SIGKILL));
    ck_assert(*pidfd.exited_within(Nanos::from_s(20)));
    const auto status = pidfd.reap();
    ck_assert(status && WIFSIGNALED(*status) && WTERMSIG(*status) == SIGKILL);
    ck_assert(pidfd.signal(SIGKILL));  // gone is ok
    ck_assert_int_eq(Pidfd::open(child).error().code, ESRCH);
}
END_TEST

START_TEST(an_exit_status_reads_as_wait_would_say_it) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(7);
    Pidfd pidfd = std::move(*Pidfd::open(child));
    ck_assert(*pidfd.exited_within(Nanos::from_s(20)));
    const int status = *pidfd.reap();
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}
END_TEST

UNIT_SUITE(fd, an_fd_closes_what_it_owns_exactly_once, files_are_read_whole_and_an_error_names_the_path,
           a_pidfd_signals_waits_and_reaps, an_exit_status_reads_as_wait_would_say_it);
