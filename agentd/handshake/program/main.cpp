// SPDX-License-Identifier: GPL-2.0-or-later
// souk-handshake: the TLS handshakes of a node, in a process that may do nothing else. agentd
// starts it, with the socket to itself as fd 3; docs/security.md.
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <seccomp.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "agentd/handshake/shaker.hpp"
#include "kernel/base/version.hpp"
#include "kernel/sys/net/packets.hpp"
#include "kernel/sys/process/sandbox.hpp"
#include "kernel/trust/key.hpp"

namespace souk::handshake {
namespace {

constexpr int control_fd = 3;

// The C library, libcrypto and libssl make these calls when they work here. None of them opens a
// file, makes one or starts a process.
constexpr int allowed[] = {
    SCMP_SYS(read),          SCMP_SYS(pread64),
    SCMP_SYS(recvmsg),       SCMP_SYS(recvfrom),
    SCMP_SYS(write),         SCMP_SYS(sendmsg),
    SCMP_SYS(sendto),        SCMP_SYS(poll),
    SCMP_SYS(ppoll),         SCMP_SYS(epoll_wait),
    SCMP_SYS(epoll_pwait),   SCMP_SYS(epoll_ctl),
    SCMP_SYS(close),         SCMP_SYS(mmap),
    SCMP_SYS(munmap),        SCMP_SYS(mremap),
    SCMP_SYS(brk),           SCMP_SYS(madvise),
    SCMP_SYS(futex),         SCMP_SYS(getrandom),
    SCMP_SYS(getpid),        SCMP_SYS(gettid),
    SCMP_SYS(clock_gettime), SCMP_SYS(gettimeofday),
    SCMP_SYS(rt_sigreturn),  SCMP_SYS(exit),
    SCMP_SYS(exit_group),    SCMP_SYS(restart_syscall),
};

// Lets the libraries read now what they need of the machine: configuration, random numbers, time
// zone. The sandbox forbids it later.
Status warm_up() {
    ::setenv("TZ", "UTC0", 1);
    ::tzset();
    if (OPENSSL_init_ssl(OPENSSL_INIT_LOAD_CRYPTO_STRINGS | OPENSSL_INIT_LOAD_SSL_STRINGS,
                         nullptr) != 1)
        return trust::fail_openssl("set up TLS");
    TRY_ASSIGN(const trust::Key key, trust::Key::make());
    TRY_ASSIGN(const std::string signature, key.sign("souk"));
    TRY(key.verify("souk", signature));
    return {};
}

// Sends the standard streams nowhere, because this process tells everything to agentd, in packets.
Status say_nothing() {
    TRY_ASSIGN(const Fd nowhere, open_at(AT_FDCWD, "/dev/null", O_RDWR));
    for (const int standard : {0, 1, 2})
        if (::dup2(nowhere.get(), standard) < 0) return fail_errno("dup2", errno);
    return {};
}

Status work(pid_t parent) {
    TRY(warm_up());
    TRY(say_nothing());
    TRY_ASSIGN(const auto shaker, Shaker::open(Fd(control_fd)));
    TRY(enter_sandbox(parent, allowed));
    return shaker->run();
}

int run(int argc, char** argv) {
    if (version_asked("souk-handshake", argc, argv)) return 0;
    if (argc != 1) {
        std::fprintf(stderr, "souk-handshake: agentd starts it; it takes no words\n");
        return 2;
    }
    ::close_range(control_fd + 1, ~0U, 0);
    // The work closes its own when it fails, and agentd is to be told why.
    const Fd last_words(::fcntl(control_fd, F_DUPFD_CLOEXEC, control_fd + 1));
    const Status worked = work(::getppid());
    if (worked) return 0;
    const Failed failed{0, worked.error().code, worked.error().message};
    (void)send_packet(last_words.get(), pack(Told(failed)));
    return 1;
}

}  // namespace
}  // namespace souk::handshake

int main(int argc, char** argv) { return souk::handshake::run(argc, argv); }
