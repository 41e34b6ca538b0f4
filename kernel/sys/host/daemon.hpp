// SPDX-License-Identifier: GPL-2.0-or-later
// What agentd and marketd do alike at their start: read a command line, and have SIGTERM and SIGINT
// end their loop.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/loop/loop.hpp"

namespace souk {

struct DaemonArguments {
    // the file that is named, else the usual one if it is there, else empty
    std::string config;
    bool check_only = false;  // read the configuration, say what is wrong with it, and end
    bool verbose = false;
};

// The exit status, if the daemon is not to run: 0 after --help (`about` is its second line), 2
// after a mistake, which one line on stderr names. The usual configuration is
// /etc/souk/PROGRAM.conf.
std::optional<int> parse_daemon_arguments(const char* program, const char* about, int argc,
                                          char** argv, DaemonArguments& into);
std::string usual_config(const char* program);

// One line if a daemon that raises its limit of open files as far as it may cannot have so many;
// else empty.
std::string descriptors_lacking(uint64_t needed, std::string_view what_for);

// Blocks the signals that end a daemon, ignores those that must not, and takes as many file
// descriptors as this process may have. `on_end` is called on the loop with the signal's name. The
// two live as long as the loop runs.
struct EndSignals {
    Fd fd;
    Watch watch;
};
Result<EndSignals> watch_end_signals(Loop& loop,
                                     std::function<void(std::string_view signal)> on_end);

}  // namespace souk
