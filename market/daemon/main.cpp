// SPDX-License-Identifier: GPL-2.0-or-later
// marketd: the market's daemon. See marketd.hpp.
#include <cstdio>

#include "kernel/sys/host/daemon.hpp"
#include "kernel/sys/host/notify.hpp"
#include "kernel/sys/host/probe.hpp"
#include "market/daemon/marketd.hpp"

namespace souk {
namespace {

constexpr Nanos drain_limit = Nanos::from_s(2);

Status serve(Log& log, const MarketConfig& config, const std::string& file) {
    TRY(require({examine_io_uring()}));
    TRY_ASSIGN(Loop loop, Loop::open(LoopOptions::for_many_peers()));
    TRY_ASSIGN(const auto daemon, Marketd::open(loop, log, config));
    TRY_ASSIGN(EndSignals signals, watch_end_signals(loop, [&](std::string_view signal) {
                   log.info("asked to end", {{"signal", signal}});
                   loop.stop();
               }));
    log.info("ready", {{"agents", config.listen},
                       {"port", static_cast<int>(daemon->port())},
                       {"socket", config.socket},
                       {"state", config.state},
                       {"configuration", file}});
    if (const Status told = notify_ready("ready"); !told)
        log.warning("sd_notify", {{"WHY", told.error()}});
    TRY(loop.run());
    (void)notify_stopping();
    signals.watch.close();
    daemon->drain();
    TRY(loop.run_until([&] { return loop.objects() == 0; }, drain_limit));
    return {};
}

int run(int argc, char** argv) {
    DaemonArguments arguments;
    if (const auto status = parse_daemon_arguments("marketd",
                                                   "The market: takes bids for jobs and offers of "
                                                   "machines, and decides which job runs where.",
                                                   argc, argv, arguments))
        return *status;
    Log log({.fd = 2,
             .level_max = arguments.verbose ? Level::debug : Level::info,
             .program = "marketd"});
    const auto config = load_market_config(arguments.config);
    if (!config) {
        std::fprintf(stderr, "marketd: %s\n", config.error().message.c_str());
        return 2;
    }
    // A descriptor for each agent and each tool, and some for the daemon itself.
    constexpr uint64_t beside = 1'024;
    const std::string lacking =
        descriptors_lacking(config->market.nodes_max + beside,
                            std::to_string(config->market.nodes_max) + " agents (nodes_max)");
    if (arguments.check_only) {
        if (!lacking.empty()) std::fprintf(stderr, "marketd: %s\n", lacking.c_str());
        return 0;
    }
    if (!lacking.empty()) log.warning("not all agents can connect", {{"WHY", lacking}});
    if (const Status served =
            serve(log, *config,
                  arguments.config.empty() ? "none: there is no " + usual_config("marketd")
                                           : arguments.config);
        !served) {
        std::fprintf(stderr, "marketd: %s\n", served.error().message.c_str());
        return 1;
    }
    return 0;
}

}  // namespace
}  // namespace souk

int main(int argc, char** argv) { return souk::run(argc, argv); }
