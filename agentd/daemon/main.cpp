// SPDX-License-Identifier: GPL-2.0-or-later
// agentd: the daemon of one node: home of the jobs submitted here, host of guests, and the owner's
// word.
#include <cstdio>

#include "agentd/daemon/agent.hpp"
#include "checkpoint/doctor.hpp"
#include "kernel/sys/host/daemon.hpp"
#include "kernel/sys/host/notify.hpp"

namespace souk {
namespace {

Status serve(Log& log, const Config& config, const std::string& file) {
    TRY(config.criu.empty() ? require_for_agent() : require_for_agent(config.criu));
    TRY_ASSIGN(Loop loop, Loop::open());
    Agent agent(loop, log, config);
    TRY_ASSIGN(const EndSignals signals, watch_end_signals(loop, [&](std::string_view signal) {
                   log.info("asked to end", {{"signal", signal}});
                   loop.stop();
               }));
    TRY(agent.begin([&] {
        if (auto told = notify_ready(); !told)
            log.warning("the service manager is not told", {{"WHY", told.error()}});
        log.info("ready",
                 {{"NODE", config.node}, {"listen", config.listen}, {"configuration", file}});
    }));
    Status ran = loop.run();
    (void)notify_stopping();
    return ran;
}

int run(int argc, char** argv) {
    DaemonArguments arguments;
    if (const auto status = parse_daemon_arguments(
            "agentd", "The daemon of one node: its jobs, its guests, its owner's word.", argc, argv,
            arguments))
        return *status;
    // A node does not run without one: its market is named there.
    const std::string file = arguments.config.empty() ? usual_config("agentd") : arguments.config;
    const auto config = load_config(file);
    if (!config) {
        std::fprintf(stderr, "agentd: %s\n", config.error().message.c_str());
        return 2;
    }
    if (arguments.check_only) return 0;
    Log log({.fd = 2,
             .level_max = arguments.verbose ? Level::debug : Level::info,
             .program = "agentd"});
    if (const Status served = serve(log, *config, file); !served) {
        log.error(served.error().message);
        return 1;
    }
    return 0;
}

}  // namespace
}  // namespace souk

int main(int argc, char** argv) { return souk::run(argc, argv); }
