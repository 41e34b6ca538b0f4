// SPDX-License-Identifier: GPL-2.0-or-later
// What pvdctl and marketctl have in common: a command line with --node, --socket and --json, one
// question to the daemon that these name, its answer on stdout. With --market and --cert, or what
// stands for them (tools/common/remote.hpp), the daemon is on another host.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tools/common/args.hpp"
#include "tools/common/ask.hpp"

namespace souk::tools {

struct CtlQuestion {
    std::string verb;
    std::vector<std::string> args;
    Result<std::string> (*text)(const Answer&);  // the answer for people; null: nothing is shown
    // set: the answer's JSON comes from this and not from a daemon
    std::function<Result<std::string>()> here{};
    // What the answer, which is shown, says of success. Errors: the tool's line, and exit status 1.
    Status (*verdict)(const Answer&) = nullptr;
    // Set: the answer is that to a next question, which follows from this one's (a verb, or
    // `here`, or a `then` of its own). With neither there is none.
    std::function<Result<CtlQuestion>(const Answer&)> then{};
    // While the answer is still to come, on a terminal: what is asked then, and how its answer is
    // shown, after so long.
    std::vector<std::string> watched{};
    std::string (*progress)(const Answer&, Nanos) = nullptr;
    // Above 0: it is asked again each so long, until somebody interrupts it, and an answer is shown
    // whenever its text is another one.
    Nanos every{};
    // The node whose agentd is asked where the command line names none; empty: as CtlTool::find
    // says.
    std::string node{};
    bool bytes = false;  // what it shows is no JSON, and --json is refused
};

struct CtlTool {
    CommandLine line;  // its options come after the common ones
    const char *node_help, *socket_help, *json_help;
    // What is not an option. Errors: wrong usage.
    std::function<Result<CtlQuestion>(std::span<char*> words)> parse;
    // The daemon's socket, from --socket and --node (tools/common/paths.hpp).
    Result<std::string> (*find)(const std::string& socket, const std::string& node);
    bool of_node = false;  // a node's daemon is asked, not the market
};

// The exit status: 0, 1 (failed) or 2 (wrong usage), the latter two with one line on stderr.
int run_ctl(CtlTool tool, int argc, char** argv);

}  // namespace souk::tools
