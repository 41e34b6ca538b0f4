// SPDX-License-Identifier: GPL-2.0-or-later
// agentd and marketd start alike: they read a command line, and let SIGTERM and SIGINT end their
// loop.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "kernel/base/result.hpp"
#include "kernel/sys/host/config_text.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/host/log.hpp"
#include "kernel/sys/loop/loop.hpp"

namespace souk {

struct DaemonArguments {
    // the file that is named, else the usual one if it is there, else empty
    std::string config;
    bool check_only = false;  // read the configuration, say what is wrong with it or is so, and end
    bool calibrate = false;   // measure this machine's speed, and end
    bool verbose = false;
};

struct DaemonProgram {
    const char* name;
    const char* about;           // one line, for --help
    std::string (*reference)();  // its settings as JSON (settings.hpp)
    bool calibrate = false;      // it knows --calibrate
};

// The exit status, if the daemon is not to run: 0 after --help, --help-source (what help says as
// JSON) or --config-reference (what the settings are), 2 after a mistake, which one line on stderr
// names. The usual configuration is /etc/souk/PROGRAM.conf.
std::optional<int> parse_daemon_arguments(const DaemonProgram& daemon, int argc, char** argv,
                                          DaemonArguments& into);
std::string usual_config(const char* program);

// A daemon's memory holds keys and what jobs said: it goes into no core file, and no other process
// of the same user looks at it. The hard limit stays, for jobs.
void no_core_dumps();

// Writes into the log what was read again and is in force, and what waits for the next start.
void tell_reload(Log& log, const std::string& file, const ConfigChange& change);

// One line if a daemon that raises its limit of open files as far as it may cannot have so many;
// else empty.
std::string descriptors_lacking(uint64_t needed, std::string_view what_for);

// Blocks the signals that end a daemon, and SIGHUP, ignores those that must not, and takes as many
// file descriptors as this process may have. `on_end` is called on the loop with the signal's name,
// `on_reload` at SIGHUP. The two live as long as the loop runs.
struct EndSignals {
    Fd fd;
    Watch watch;
};
Result<EndSignals> watch_end_signals(Loop& loop,
                                     std::function<void(std::string_view signal)> on_end,
                                     std::function<void()> on_reload);

}  // namespace souk
