// SPDX-License-Identifier: GPL-2.0-or-later
// souk-inspect: reads images of jobs, which other nodes have made, in processes that may do nothing
// else. agentd starts it, with the socket to itself as fd 3; docs/security.md.
#include <fcntl.h>
#include <seccomp.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "agentd/inspect/reading.hpp"
#include "kernel/base/version.hpp"
#include "kernel/sys/net/packets.hpp"
#include "kernel/sys/process/sandbox.hpp"

namespace souk::inspect {
namespace {

constexpr int control_fd = 3;
constexpr rlim_t cpu_seconds_max = 20;  // for one image

// The C library makes these calls in a process that reads an image. None of them opens a file,
// makes one or starts a process.
constexpr int of_a_reader[] = {
    SCMP_SYS(pread64),    SCMP_SYS(recvmsg),      SCMP_SYS(sendmsg),
    SCMP_SYS(poll),       SCMP_SYS(ppoll),        SCMP_SYS(close),
    SCMP_SYS(mmap),       SCMP_SYS(munmap),       SCMP_SYS(mremap),
    SCMP_SYS(brk),        SCMP_SYS(madvise),      SCMP_SYS(futex),
    SCMP_SYS(exit),       SCMP_SYS(rt_sigreturn), SCMP_SYS(restart_syscall),
    SCMP_SYS(exit_group),
};
// The first process makes these calls; it starts the readers, and sets their limits.
constexpr int of_the_first[] = {
    SCMP_SYS(pread64),    SCMP_SYS(recvmsg),        SCMP_SYS(sendmsg),
    SCMP_SYS(poll),       SCMP_SYS(ppoll),          SCMP_SYS(close),
    SCMP_SYS(mmap),       SCMP_SYS(munmap),         SCMP_SYS(mremap),
    SCMP_SYS(brk),        SCMP_SYS(madvise),        SCMP_SYS(futex),
    SCMP_SYS(exit),       SCMP_SYS(rt_sigreturn),   SCMP_SYS(restart_syscall),
    SCMP_SYS(exit_group), SCMP_SYS(clone),          SCMP_SYS(set_robust_list),
    SCMP_SYS(rseq),       SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigaction),
    SCMP_SYS(prlimit64),  SCMP_SYS(setrlimit),      SCMP_SYS(prctl),
    SCMP_SYS(seccomp),    SCMP_SYS(getpid),         SCMP_SYS(gettid),
};

Status confine() {
    const rlimit cpu{cpu_seconds_max, cpu_seconds_max};
    if (::setrlimit(RLIMIT_CPU, &cpu) != 0) return fail_errno("setrlimit", errno);
    return allow_calls(of_a_reader);
}

Status say_nothing() {
    TRY_ASSIGN(const Fd nowhere, open_at(AT_FDCWD, "/dev/null", O_RDWR));
    for (const int standard : {0, 1, 2})
        if (::dup2(nowhere.get(), standard) < 0) return fail_errno("dup2", errno);
    return {};
}

int run(int argc, char** argv) {
    if (version_asked("souk-inspect", argc, argv)) return 0;
    if (argc != 1) {
        std::fprintf(stderr, "souk-inspect: agentd starts it; it takes no words\n");
        return 2;
    }
    const pid_t parent = ::getppid();
    ::close_range(control_fd + 1, ~0U, 0);
    Fd control(control_fd);
    Status begun = say_nothing();
    if (begun) begun = enter_sandbox(parent, of_the_first);
    // An empty refusal: it has begun.
    (void)send_packet(control.get(), pack(Refusal{begun ? "" : begun.error().message}));
    if (!begun) return 1;
    start_readers(std::move(control), confine);
    return 0;
}

}  // namespace
}  // namespace souk::inspect

int main(int argc, char** argv) { return souk::inspect::run(argc, argv); }
