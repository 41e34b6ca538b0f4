// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/process/bounded_work.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "kernel/base/number.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {
namespace {

[[noreturn]] void answer(int to, pid_t parent, const std::function<std::string()>& work) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (::getppid() != parent) ::_exit(1);
    const std::string said = work();
    ::_exit(write_all(to, std::string_view(said).substr(0, bounded_answer_max), "answer") ? 0 : 1);
}

// Reads until the end of the work.
Status hear(int from, Nanos limit, std::string& said) {
    const Nanos end = monotonic_now() + limit;
    for (;;) {
        const int64_t left_ms = (end - monotonic_now()).ns / 1'000'000;
        if (left_ms <= 0) return fail_errno("work of another process", ETIMEDOUT);
        pollfd p{from, POLLIN, 0};
        if (::poll(&p, 1, static_cast<int>(left_ms)) <= 0) continue;
        char bytes[4096];
        const ssize_t n = ::read(from, bytes, sizeof bytes);
        if (n == 0) return {};
        if (n > 0) said.append(bytes, static_cast<size_t>(n));
        if (n < 0 && errno != EINTR) return fail_errno("work of another process", errno);
    }
}

}  // namespace

Result<std::string> work_within(Nanos limit, const std::function<std::string()>& work) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno("pipe", errno);
    const Fd from(ends[0]);
    Fd to(ends[1]);
    const pid_t self = ::getpid(), child = ::fork();
    if (child < 0) return fail_errno("fork", errno);
    if (child == 0) answer(to.get(), self, work);
    to.reset();
    std::string said;
    if (auto heard = hear(from.get(), limit, said); !heard) {
        (void)::kill(child, SIGKILL);
        (void)::waitpid(child, nullptr, WNOHANG);
        return tl::unexpected(heard.error());
    }
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return fail("who works on it has ended");
    return said;
}

Status done_within(Nanos limit, const std::function<Status()>& work) {
    TRY_ASSIGN(const std::string failed, work_within(limit, [&]() -> std::string {
                   const Status done = work();
                   return done ? ""
                               : std::to_string(done.error().code) + " " + done.error().message;
               }));
    if (failed.empty()) return {};
    const size_t space = failed.find(' ');
    return tl::unexpected(Error{leading_number<int>(failed).value_or(0), failed.substr(space + 1)});
}

}  // namespace souk
