// SPDX-License-Identifier: GPL-2.0-or-later
// marketd: the market's daemon. See marketd.hpp.
#include <poll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "kernel/sys/probe.hpp"
#include "market/daemon/marketd.hpp"

namespace souk {
namespace {

constexpr Nanos drain_limit = Nanos::from_s(2);

constexpr const char help[] =
    "Usage: marketd [--config FILE] [--check-config]\n"
    "The market: takes bids for jobs and offers of machines from agents, and decides which job runs where.\n"
    "  -c, --config FILE   TOML; without it every key has its default\n"
    "      --check-config  read the configuration, say what is wrong with it, and end\n"
    "  -v, --verbose       log every order\n"
    "  -h, --help          this text\n";

struct Arguments {
    std::string config;
    bool check_only = false, verbose = false;
};
enum class Parsed { go, done, failed };

Parsed parse(int argc, char** argv, Arguments& into) {
    for (int i = 1; i < argc; ++i) {
        const std::string_view arg = argv[i];
        if (arg == "-h" || arg == "--help") {
            std::fputs(help, stdout);
            return Parsed::done;
        }
        if (arg == "--check-config") into.check_only = true;
        else if (arg == "-v" || arg == "--verbose") into.verbose = true;
        else if ((arg == "-c" || arg == "--config") && i + 1 < argc) into.config = argv[++i];
        else if (arg.starts_with("--config=")) into.config = arg.substr(9);
        else {
            std::fprintf(stderr, "marketd: %s: %s (--help says what there is)\n", argv[i],
                         arg == "-c" || arg == "--config" ? "needs a file" : "unknown argument");
            return Parsed::failed;
        }
    }
    return Parsed::go;
}

// One connection an agent: as many descriptors as we may have.
void raise_descriptor_limit() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == limit.rlim_max) return;
    limit.rlim_cur = limit.rlim_max;
    (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

Result<Fd> catch_signals() {
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    if (::sigprocmask(SIG_BLOCK, &ends, nullptr) < 0) return fail_errno("sigprocmask", errno);
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGHUP, SIG_IGN);
    Fd fd(::signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!fd) return fail_errno("signalfd", errno);
    return fd;
}

Status serve(Log& log, const MarketConfig& config) {
    TRY(require({examine_io_uring()}));
    TRY_ASSIGN(const Fd signals, catch_signals());
    raise_descriptor_limit();
    TRY_ASSIGN(Loop loop, Loop::open());
    TRY_ASSIGN(const auto daemon, Marketd::open(loop, log, config));
    TRY_ASSIGN(Watch watch, loop.watch(signals.get(), POLLIN, [&](short) {
        signalfd_siginfo info{};
        if (::read(signals.get(), &info, sizeof info) != sizeof info) return;
        log.info("asked to end", {{"signal", ::strsignal(static_cast<int>(info.ssi_signo))}});
        loop.stop();
    }));
    log.info("ready", {{"agents", config.listen}, {"port", static_cast<int>(daemon->port())}, {"socket", config.socket},
                       {"state", config.state}});
    if (const Status told = notify_ready("ready"); !told) log.warning("sd_notify", {{"why", told.error()}});
    TRY(loop.run());
    (void)notify_stopping();
    watch.close();
    daemon->drain();
    TRY(loop.run_until([&] { return loop.objects() == 0; }, drain_limit));
    return {};
}

int run(int argc, char** argv) {
    Arguments arguments;
    switch (parse(argc, argv, arguments)) {
        case Parsed::done: return 0;
        case Parsed::failed: return 2;
        case Parsed::go: break;
    }
    Log log({.fd = 2, .level_max = arguments.verbose ? Level::debug : Level::info, .program = "marketd"});
    const auto config = load_market_config(arguments.config);
    if (!config) {
        std::fprintf(stderr, "marketd: %s\n", config.error().message.c_str());
        return 2;
    }
    if (arguments.check_only) return 0;
    if (const Status served = serve(log, *config); !served) {
        std::fprintf(stderr, "marketd: %s\n", served.error().message.c_str());
        return 1;
    }
    return 0;
}

}  // namespace
}  // namespace souk

int main(int argc, char** argv) { return souk::run(argc, argv); }
