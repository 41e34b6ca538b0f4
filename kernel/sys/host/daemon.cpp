// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/host/daemon.hpp"
#include "kernel/sys/host/complain.hpp"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernel/base/json.hpp"
#include "kernel/base/version.hpp"

namespace souk {
namespace {

struct DaemonOption {
    char letter;
    const char *name, *value, *help;
};

constexpr DaemonOption options[] = {
    {'c', "config", "FILE", "read the configuration from there (TOML)"},
    {0, "check-config", "",
     "read the configuration, say what is wrong with it, else what is in force and from where"},
    {'v', "verbose", "",
     "log every step of the machines (level debug); $SOUK_LOG=debug says the same"},
    {0, "calibrate", "", "measure the speed of this machine, print it, and end"},
    {0, "version", "", "show the version and end"},
    {'h', "help", "", "this text"},
};
constexpr const char* notes =
    "In the configuration a time is a number in the unit that its key names, or \"90s\", \"30m\", "
    "\"1.5h\", \"2d\"; a size in\nMB, or \"512M\", \"4G\".";

// Tells whether this daemon has the option: not every daemon has each.
bool has(const DaemonProgram& program, const DaemonOption& option) {
    return std::string_view(option.name) != "calibrate" || program.calibrate;
}

std::string synopsis(const DaemonProgram& program) {
    return std::string("[--config FILE] [--check-config] [--verbose]") +
           (program.calibrate ? " | --calibrate" : "");
}

void print_help(const DaemonProgram& program) {
    std::printf("usage: %s %s\n%s\n\n", program.name, synopsis(program).c_str(), program.about);
    for (const DaemonOption& o : options) {
        if (!has(program, o)) continue;
        const std::string left = (o.letter ? std::string("-") + o.letter + ", " : "    ") + "--" +
                                 o.name + (*o.value ? std::string(" ") + o.value : "");
        std::printf("  %-18s  %s\n", left.c_str(), o.help);
    }
    std::printf("\n%s\nWithout --config it reads %s, if that is there.\n", notes,
                usual_config(program.name).c_str());
}

// Prints the options in the form of tools/common/args.cpp.
void print_source(const DaemonProgram& program) {
    JsonWriter w;
    w.begin_object().field("program", program.name).field("synopsis", synopsis(program));
    w.field("about", program.about).key("options").begin_array();
    for (const DaemonOption& o : options) {
        if (!has(program, o)) continue;
        w.begin_object().field("letter", o.letter ? std::string(1, o.letter) : "");
        w.field("name", o.name).field("value", o.value).field("help", o.help).end_object();
    }
    w.end_array().field("notes", notes).end_object();
    std::puts(w.take().c_str());
}

void raise_descriptor_limit() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == limit.rlim_max) return;
    limit.rlim_cur = limit.rlim_max;
    (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

std::optional<int> parse_daemon_arguments(const DaemonProgram& daemon, int argc, char** argv,
                                          DaemonArguments& into) {
    const char* const level = std::getenv("SOUK_LOG");
    const char* const program = daemon.name;
    into.verbose = level && std::string_view(level) == "debug";
    for (int i = 1; i < argc; ++i) {
        const std::string_view arg = argv[i];
        const bool config = arg == "-c" || arg == "--config";
        if (arg == "-h" || arg == "--help") return print_help(daemon), 0;
        if (arg == "--help-source") return print_source(daemon), 0;
        if (arg == "--config-reference") return std::puts(daemon.reference().c_str()), 0;
        if (arg == "--version") return print_version(program), 0;
        if (arg == "--check-config")
            into.check_only = true;
        else if (arg == "--calibrate" && daemon.calibrate)
            into.calibrate = true;
        else if (arg == "-v" || arg == "--verbose")
            into.verbose = true;
        else if (config && i + 1 < argc)
            into.config = argv[++i];
        else if (arg.starts_with("--config="))
            into.config = arg.substr(9);
        else
            return complain_usage(program, std::string(argv[i]) + ": " +
                                               (config ? "needs a file" : "unknown argument"));
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

void no_core_dumps() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_CORE, &limit) == 0) {
        limit.rlim_cur = 0;
        ::setrlimit(RLIMIT_CORE, &limit);
    }
    ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);  // a program that takes cores from a pipe asks no limit
}

void tell_reload(Log& log, const std::string& file, const ConfigChange& change) {
    log.info("configuration read again",
             {{"configuration", file},
              {"in_force", change.taken.empty() ? "nothing new" : change.taken}});
    if (!change.not_taken.empty())
        log.warning("some of the configuration counts from the next start",
                    {{"keys", change.not_taken}});
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
                                     std::function<void(std::string_view signal)> on_end,
                                     std::function<void()> on_reload) {
    raise_descriptor_limit();
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGHUP);
    if (::sigprocmask(SIG_BLOCK, &ends, nullptr) < 0) return fail_errno("sigprocmask", errno);
    std::signal(SIGPIPE, SIG_IGN);
    EndSignals signals;
    signals.fd = Fd(::signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals.fd) return fail_errno("signalfd", errno);
    auto on_signal = [fd = signals.fd.get(), on_end = std::move(on_end),
                      on_reload = std::move(on_reload)](short) {
        signalfd_siginfo info{};
        if (::read(fd, &info, sizeof info) != sizeof info) return;
        if (info.ssi_signo == SIGHUP) return on_reload();
        on_end(::strsignal(static_cast<int>(info.ssi_signo)));
    };
    TRY_ASSIGN(signals.watch, loop.watch(signals.fd.get(), POLLIN, std::move(on_signal)));
    return signals;
}

}  // namespace souk
