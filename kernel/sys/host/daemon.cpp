// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/host/daemon.hpp"

#include <poll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernel/base/version.hpp"

namespace souk {
namespace {

constexpr const char options_help[] =
    "  -c, --config FILE   read the configuration from there (TOML)\n"
    "      --check-config  read the configuration, say what is wrong with it, and end\n"
    "  -v, --verbose       log every step of the machines (level debug); $SOUK_LOG=debug says the "
    "same\n"
    "      --version       show the version and end\n"
    "  -h, --help          this text\n"
    "\nIn the configuration a time is a number in the unit that its key names, or \"90s\", "
    "\"30m\", \"1.5h\", \"2d\"; a size in\n"
    "MB, or \"512M\", \"4G\".\n";

void raise_descriptor_limit() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == limit.rlim_max) return;
    limit.rlim_cur = limit.rlim_max;
    (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

std::optional<int> parse_daemon_arguments(const char* program, const char* about, int argc,
                                          char** argv, DaemonArguments& into) {
    const char* const level = std::getenv("SOUK_LOG");
    into.verbose = level && std::string_view(level) == "debug";
    for (int i = 1; i < argc; ++i) {
        const std::string_view arg = argv[i];
        const bool config = arg == "-c" || arg == "--config";
        if (arg == "-h" || arg == "--help") {
            std::printf(
                "usage: %s [--config FILE] [--check-config] [--verbose]\n%s\n%sWithout --config it "
                "reads %s, if that is there.\n",
                program, about, options_help, usual_config(program).c_str());
            return 0;
        }
        if (arg == "--version") return print_version(program), 0;
        if (arg == "--check-config")
            into.check_only = true;
        else if (arg == "-v" || arg == "--verbose")
            into.verbose = true;
        else if (config && i + 1 < argc)
            into.config = argv[++i];
        else if (arg.starts_with("--config="))
            into.config = arg.substr(9);
        else {
            std::fprintf(stderr, "%s: %s: %s (see %s --help)\n", program, argv[i],
                         config ? "needs a file" : "unknown argument", program);
            return 2;
        }
    }
    // One that is there and cannot be read is an error of its reading.
    const std::string usual = usual_config(program);
    if (into.config.empty() && (::access(usual.c_str(), F_OK) == 0 || errno != ENOENT))
        into.config = usual;
    return std::nullopt;
}

std::string usual_config(const char* program) {
    return std::string("/etc/souk/") + program + ".conf";
}

std::string descriptors_lacking(uint64_t needed, std::string_view what_for) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_max >= needed) return {};
    const std::string number = std::to_string(needed);
    return "no more than " + std::to_string(limit.rlim_max) +
           " files may be open (hard limit), and " + std::string(what_for) + " need " + number +
           ": LimitNOFILE=" + number + " in its unit, or ulimit -Hn " + number;
}

Result<EndSignals> watch_end_signals(Loop& loop,
                                     std::function<void(std::string_view signal)> on_end) {
    raise_descriptor_limit();
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    if (::sigprocmask(SIG_BLOCK, &ends, nullptr) < 0) return fail_errno("sigprocmask", errno);
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGHUP, SIG_IGN);
    EndSignals signals;
    signals.fd = Fd(::signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals.fd) return fail_errno("signalfd", errno);
    auto on_signal = [fd = signals.fd.get(), on_end = std::move(on_end)](short) {
        signalfd_siginfo info{};
        if (::read(fd, &info, sizeof info) != sizeof info) return;
        on_end(::strsignal(static_cast<int>(info.ssi_signo)));
    };
    TRY_ASSIGN(signals.watch, loop.watch(signals.fd.get(), POLLIN, std::move(on_signal)));
    return signals;
}

}  // namespace souk
