// SPDX-License-Identifier: GPL-2.0-or-later
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/process/process.hpp"
#include "tests/unit/temp_dir.hpp"
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

START_TEST(a_file_is_made_emptied_or_refused_and_replaced_at_once) {
    const unit::TempDir dir;
    const auto text = [&](const char* name) { return *read_file(dir.fd.get(), name); };
    ck_assert(create_file(dir.fd.get(), "a", "first").has_value());
    ck_assert(create_file(dir.fd.get(), "a", "2nd").has_value());
    ck_assert_text(text("a"), "2nd");
    ck_assert_int_eq(create_file(dir.fd.get(), "a", "third", O_EXCL).error().code, EEXIST);
    for (const bool durable : {false, true}) {
        ck_assert(
            replace_file(dir.path + "/a", durable ? "on disk" : "", 0600, durable).has_value());
        ck_assert_text(text("a"), durable ? "on disk" : "");
    }
    ck_assert_uint_eq(list_dir(dir.fd.get(), ".")->size(), 1);
    const Status full = create_file(AT_FDCWD, "/dev/full", "x");
    ck_assert_int_eq(full.error().code, ENOSPC);
    ck_assert_text(full.error().message, "write /dev/full: No space left on device");
}
END_TEST

START_TEST(a_process_is_read_whatever_its_name_holds) {
    const std::string rest =
        " S 7 8 9 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 3 0 4567 8192 12 18446744073709551615 1 1 0\n";
    ProcStat stat;
    ck_assert(parse_proc_stat(("42 (a) Z (b)" + rest).c_str(), &stat));
    ck_assert_text(std::string(stat.name), "a) Z (b");
    ck_assert(stat.state == 'S' && stat.parent == 7 && stat.session == 9 && stat.threads == 3 &&
              stat.flags == 4194304);
    ck_assert(stat.start_ticks == 4567 && stat.reserved_bytes == 8192 && stat.resident_pages == 12);
    ck_assert(parse_proc_stat(("42 (" + std::string(200, 'x') + ")" + rest).c_str(), &stat));
    ck_assert_uint_eq(std::string(stat.name).size(), 64);
    for (const char* text : {"", "42", "42 )(", "42 (a)", "42 (a) S 7 8"})
        ck_assert(!parse_proc_stat(text, &stat));
    const auto own = process_id(::getpid());
    ck_assert(own && own->start_ticks > 0 && read_proc_stat(::getpid())->parent == ::getppid());
    ck_assert(!process_id(1 << 30));
}
END_TEST

UNIT_SUITE(fd, a_file_is_made_emptied_or_refused_and_replaced_at_once,
           a_process_is_read_whatever_its_name_holds, an_fd_closes_what_it_owns_exactly_once,
           files_are_read_whole_and_an_error_names_the_path, a_pidfd_signals_waits_and_reaps,
           an_exit_status_reads_as_wait_would_say_it);
