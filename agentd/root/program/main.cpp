// SPDX-License-Identifier: GPL-2.0-or-later
// souk-root: starts processes for agentd, which has no right to. agentd starts it, with the socket
// to itself as fd 3, and where CRIU is installed and which file tells its status as its words;
// docs/security.md. It ends with agentd.
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "agentd/root/starter.hpp"
#include "kernel/base/version.hpp"
#include "kernel/sys/net/packets.hpp"
#include "kernel/sys/process/capsule.hpp"

namespace souk::root {
namespace {

constexpr int control_fd = 3;

// What ends agentd (a terminal's ^C, a service manager) comes to both; this one ends after it.
void wait_for_agentd() {
    sigset_t ends;
    sigemptyset(&ends);
    for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&ends, number);
    ::sigprocmask(SIG_BLOCK, &ends, nullptr);
}

int run(int argc, char** argv) {
    if (version_asked("souk-root", argc, argv)) return 0;
    if (argc != 3) {
        std::fprintf(stderr,
                     "souk-root: agentd starts it, and says where CRIU is, and its status file\n");
        return 2;
    }
    wait_for_agentd();
    ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    ::close_range(control_fd + 1, ~0U, 0);
    const Fd control(control_fd);
    ::fcntl(control.get(), F_SETFD, FD_CLOEXEC);
    const Starter starter(argv[1], argv[2]);
    const Status ready = Capsule::prepare();
    (void)send_packet(control.get(), ready ? pack(Told(Started{::getpid(), 0}))
                                           : pack(Told(Refused{0, ready.error().message})));
    return ready && serve(starter, control.get()) ? 0 : 1;
}

}  // namespace
}  // namespace souk::root

int main(int argc, char** argv) { return souk::root::run(argc, argv); }
