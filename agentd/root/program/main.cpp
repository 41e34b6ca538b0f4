// SPDX-License-Identifier: GPL-2.0-or-later
// souk-root: starts processes for agentd, which has no right to. agentd starts it, with the socket
// to itself as fd 3, and as its words where CRIU is installed, which file tells its status, and,
// all or none of them: its configuration, its map of users, the user and the group that it will be,
// its state, its identity, its control group, how many MB of images it has in memory, its node's
// name, what it wants of jobs of other homes (any, accepted or required: a ticket), whether root
// has jobs (1), the lowest number of a user of other homes, the groups that those may be in, and
// the bridge, the addresses and the gateway of its jobs' network (or none: empty); with them as fd
// 4 the socket that tools connect to, and as fd 5 where to pass each connection on.
// docs/security.md. It ends with agentd.
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <sstream>

#include "agentd/root/starter.hpp"
#include "kernel/base/number.hpp"
#include "kernel/base/version.hpp"
#include "kernel/sys/host/installation.hpp"
#include "kernel/sys/net/packets.hpp"
#include "kernel/sys/process/capsule.hpp"

namespace souk::root {
namespace {

constexpr int control_fd = 3;

// Blocks the signals that end agentd (a terminal's ^C, a service manager): they come to both
// processes, and this one must end after agentd.
void wait_for_agentd() {
    sigset_t ends;
    sigemptyset(&ends);
    for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&ends, number);
    ::sigprocmask(SIG_BLOCK, &ends, nullptr);
}

uint32_t number_of(const char* word) { return leading_number<uint32_t>(word).value_or(0); }

who::Rules rules_of(char** words, const AgentPlace& place, const std::string& map) {
    who::Rules rules{.node = words[0],
                     .any = std::string_view(words[1]) == "any",
                     .root_jobs = std::string_view(words[2]) == "1",
                     .accepts = std::string_view(words[1]) == "accepted",
                     .id_min = number_of(words[3]),
                     .groups = {},
                     .kept = beside_state(place.state),
                     .identity = place.identity,
                     .map = map};
    std::istringstream names(words[4]);
    for (std::string name; names >> name;) rules.groups.push_back(name);
    return rules;
}

Result<std::optional<JobNetwork>> network_of(char** words) {
    JobNetwork network;
    network.bridge = words[0];
    if (network.bridge.empty()) return std::nullopt;
    TRY_ASSIGN(network.range, parse_ipv4_range(words[1]));
    if (words[2][0] != '\0') {
        TRY_ASSIGN(network.gateway, parse_ipv4(words[2]));
    }
    return network;
}

// An agentd that is root needs no leave.
Result<who::Who> open_who(who::Rules rules, AgentUser user) {
    auto opened = who::Who::open(std::move(rules));
    return opened || user ? std::move(opened) : who::Who::believing();
}

int run(int argc, char** argv) {
    if (version_asked("souk-root", argc, argv)) return 0;
    constexpr int least = 3, whole = 19;
    if (argc != least && argc != whole) {
        std::fprintf(stderr, "souk-root: agentd starts it, and says what is whose\n");
        return 2;
    }
    wait_for_agentd();
    ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    const Door door = argc == whole ? Door{control_fd + 1, control_fd + 2} : Door{};
    ::close_range(static_cast<unsigned>(std::max(control_fd, door.agentd)) + 1, ~0U, 0);
    const Fd control(control_fd);
    for (const int fd : {control_fd, door.listener, door.agentd})
        if (fd >= 0) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    AgentUser user;
    Starter::Files files{argv[2], "", ""};
    auto who = Result<who::Who>(who::Who::believing());
    Result<std::optional<JobNetwork>> network = std::nullopt;
    Status ready = Capsule::prepare();
    if (ready && argc == whole) {
        files = {argv[2], argv[3], argv[4]};
        user = {number_of(argv[5]), number_of(argv[6])};
        const AgentPlace place{argv[7], argv[8], argv[9],
                               leading_number<int64_t>(argv[10]).value_or(0)};
        who = open_who(rules_of(argv + 11, place, files.users), user);
        network = network_of(argv + 16);
        ready = network ? Status{} : tl::unexpected(network.error());
        if (ready) ready = who ? hand_over(place, user) : tl::unexpected(who.error());
    }
    if (!ready) {
        (void)send_packet(control.get(), pack(Told(Refused{0, ready.error().message})));
        return 1;
    }
    Starter starter(argv[1], files, user, std::move(*who), std::move(*network));
    (void)send_packet(control.get(), pack(Told(Started{::getpid(), 0})));
    return serve(starter, control.get(), door) ? 0 : 1;
}

}  // namespace
}  // namespace souk::root

int main(int argc, char** argv) { return souk::root::run(argc, argv); }
