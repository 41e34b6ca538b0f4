// SPDX-License-Identifier: GPL-2.0-or-later
// agentd: the daemon of one node: home of the jobs submitted here, host of guests, and the owner's word.
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>

#include "agentd/daemon/agent.hpp"
#include "agentd/daemon/tool_session.hpp"
#include "checkpoint/doctor.hpp"
#include "kernel/sys/log.hpp"

namespace souk {
namespace {

constexpr const char* usage = "usage: agentd [--config FILE] [--check-config]\n";

int run(int argc, char** argv) {
    std::string path = "/etc/souk/agentd.conf";
    bool check_only = false;
    for (int i = 1; i < argc; ++i) {
        const std::string_view arg = argv[i];
        if (arg == "--config" && i + 1 < argc) {
            path = argv[++i];
        } else if (arg == "--check-config") {
            check_only = true;
        } else if (arg == "--help") {
            std::fputs(usage, stdout);
            return 0;
        } else {
            std::fprintf(stderr, "agentd: unknown argument '%s' (see agentd --help)\n", argv[i]);
            return 2;
        }
    }
    Log log({.fd = 2, .level_max = Level::info, .program = "agentd"});
    const auto complain = [&](const Error& e) {
        log.error(e.message);
        return 1;
    };
    auto config = load_config(path);
    if (!config) return complain(config.error());
    if (check_only) {
        std::printf("%s: good\n", path.c_str());
        return 0;
    }
    if (auto fit = (config->criu.empty() ? require_for_agent() : require_for_agent(config->criu)); !fit) return complain(fit.error());

    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    ::sigprocmask(SIG_BLOCK, &set, nullptr);
    ::signal(SIGPIPE, SIG_IGN);
    const Fd signals(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));

    // A job takes some ten descriptors here; its own limit is its submitter's.
    rlimit files{};
    if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)::setrlimit(RLIMIT_NOFILE, &files);
    }
    auto loop = Loop::open();
    if (!loop) return complain(loop.error());
    Agent agent(*loop, log, *config);
    auto stop = loop->watch(signals.get(), POLLIN, [&](short) { loop->stop(); });
    if (!stop) return complain(stop.error());
    const auto ready = [&] {
        if (auto told = notify_ready(); !told) log.warning("the service manager is not told", {{"error", told.error()}});
        log.info("ready", {{"node", config->node}, {"listen", config->listen}});
    };
    if (auto begun = agent.begin(ready); !begun) return complain(begun.error());
    const Status ran = loop->run();
    (void)notify_stopping();
    return ran ? 0 : complain(ran.error());
}

}  // namespace
}  // namespace souk

int main(int argc, char** argv) { return souk::run(argc, argv); }
