// SPDX-License-Identifier: GPL-2.0-or-later
// marketd: the market's daemon. See marketd.hpp.
#include <cstdio>

#include "kernel/sys/host/complain.hpp"
#include "kernel/sys/host/daemon.hpp"
#include "kernel/sys/host/notify.hpp"
#include "kernel/sys/host/probe.hpp"
#include "market/daemon/marketd.hpp"

namespace souk {
namespace {

constexpr Nanos drain_limit = Nanos::from_s(2);

// A running market takes these of a new configuration. How it decides is changed with marketctl
// set.
constexpr ReloadedKey<MarketConfig> reloaded[] = {
    {"agent_queue_mb", take_member<&MarketConfig::agent_queue_mb>},
    {"finished_days", take_member<&MarketConfig::finished_age>},
    {"finished_max", take_member<&MarketConfig::finished_max>},
    {"hello_patience_ms", take_member<&MarketConfig::hello_patience>},
    {"keepalive_s", take_member<&MarketConfig::keepalive>},
    {"name", take_member<&MarketConfig::name>},
};

void reload(Log& log, MarketConfig& config, ConfigText& text, const std::string& file) {
    (void)notify_reloading();
    ConfigText read;
    if (auto now = load_market_config(file, &read)) {
        tell_reload(log, file,
                    take_keys(std::span<const ReloadedKey<MarketConfig>>(reloaded), config, *now,
                              text, read));
    } else {
        log.error("the configuration is not read again", {{"WHY", now.error()}});
    }
    (void)notify_ready();
}

Status serve(Log& log, MarketConfig& config, ConfigText& text, const std::string& file) {
    TRY(require({examine_io_uring()}));
    TRY_ASSIGN(Loop loop, Loop::open(LoopOptions::for_many_peers()));
    TRY_ASSIGN(const auto daemon, Marketd::open(loop, log, config));
    TRY_ASSIGN(EndSignals signals, watch_end_signals(
                                       loop,
                                       [&](std::string_view signal) {
                                           log.info("asked to end", {{"signal", signal}});
                                           loop.stop();
                                       },
                                       [&] { reload(log, config, text, file); }));
    const Watchdog watchdog(loop);
    log.info("ready", {{"agents", config.listen},
                       {"port", static_cast<int>(daemon->port())},
                       {"socket", config.socket},
                       {"state", config.state},
                       {"configuration",
                        file.empty() ? "none: there is no " + usual_config("marketd") : file}});
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
    const DaemonProgram daemon{"marketd",
                               "The market: takes bids for jobs and offers of machines, and "
                               "decides which job runs where.",
                               market_config_reference};
    if (const auto status = parse_daemon_arguments(daemon, argc, argv, arguments)) return *status;
    no_core_dumps();
    Log log({.fd = 2,
             .level_max = arguments.verbose ? Level::debug : Level::info,
             .program = "marketd"});
    ConfigText text;
    auto config = load_market_config(arguments.config, &text);
    if (!config) {
        complain("marketd", caused_by(CauseCode::invalid, config.error()));
        return 2;
    }
    // A descriptor for each agent and each tool, and some for the daemon itself.
    constexpr uint64_t beside = 1'024;
    const std::string lacking =
        descriptors_lacking(config->market.nodes_max + beside,
                            std::to_string(config->market.nodes_max) + " agents (nodes_max)");
    if (arguments.check_only) {
        if (!lacking.empty()) std::fprintf(stderr, "marketd: %s\n", lacking.c_str());
        std::fputs(text.text.c_str(), stdout);
        return std::fflush(stdout) == 0 ? 0 : 1;
    }
    if (!lacking.empty()) log.warning("not all agents can connect", {{"WHY", lacking}});
    if (const Status served = serve(log, *config, text, arguments.config); !served) {
        complain("marketd", served.error());
        return 1;
    }
    return 0;
}

}  // namespace
}  // namespace souk

int main(int argc, char** argv) { return souk::run(argc, argv); }
