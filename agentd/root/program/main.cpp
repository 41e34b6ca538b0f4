// SPDX-License-Identifier: GPL-2.0-or-later
// souk-root: starts processes for agentd, which has no right to. agentd starts it, with the socket
// to itself as fd 3, and as its words where CRIU is installed, which file tells its status, and,
// all or none of them: its configuration, its map of users, the user and the group that it will be,
// its state, its identity, its control group, and how many MB of images it has in memory;
// docs/security.md. It ends with agentd.
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "agentd/root/starter.hpp"
#include "kernel/base/number.hpp"
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
    constexpr int least = 3, whole = 11;
    if (argc != least && argc != whole) {
        std::fprintf(stderr, "souk-root: agentd starts it, and says what is whose\n");
        return 2;
    }
    wait_for_agentd();
    ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    ::close_range(control_fd + 1, ~0U, 0);
    const Fd control(control_fd);
    ::fcntl(control.get(), F_SETFD, FD_CLOEXEC);
    AgentUser user;
    Starter::Files files{argv[2], "", ""};
    Status ready = Capsule::prepare();
    if (ready && argc == whole) {
        files = {argv[2], argv[3], argv[4]};
        user = {leading_number<uint32_t>(argv[5]).value_or(0),
                leading_number<uint32_t>(argv[6]).value_or(0)};
        ready = hand_over(
            {argv[7], argv[8], argv[9], leading_number<int64_t>(argv[10]).value_or(0)}, user);
    }
    Starter starter(argv[1], files, user);
    (void)send_packet(control.get(), ready ? pack(Told(Started{::getpid(), 0}))
                                           : pack(Told(Refused{0, ready.error().message})));
    return ready && serve(starter, control.get()) ? 0 : 1;
}

}  // namespace
}  // namespace souk::root

int main(int argc, char** argv) { return souk::root::run(argc, argv); }
