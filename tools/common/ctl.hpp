// SPDX-License-Identifier: GPL-2.0-or-later
// pvdctl and marketctl share this: a command line with --node, --socket and --json, one question to
// the daemon that these name, its answer on stdout. With --market and --cert, or what stands for
// them (tools/common/remote.hpp), the daemon is on another host.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tools/common/args.hpp"
#include "tools/common/ask.hpp"

namespace souk::tools {

// Asks the daemon that the command line names for one part of an answer, as ask_part() does.
// Several threads may call it at once.
using AskPart =
    std::function<Result<ListPart>(const std::string& verb, const std::vector<std::string>& args,
                                   const std::string& after, Nanos limit)>;
struct CtlShown {
    std::string text;
    Status verdict;  // an error: the text is shown, and then this, with exit status 1
};

struct CtlQuestion {
    std::string verb;
    std::vector<std::string> args;
    // The answer for people; null: nothing is shown.
    std::function<Result<std::string>(const Answer&)> text;
    // set: the answer's JSON comes from this and not from a daemon
    std::function<Result<std::string>()> here{};
    // Tells whether the answer, which is shown, means success. An error becomes the tool's line,
    // with exit status 1.
    Status (*verdict)(const Answer&) = nullptr;
    // Set: this makes the next question from the answer, and that question's answer is shown. The
    // first answer is that of a verb, of `here`, or of an earlier `then`. With neither a verb nor
    // `here` there is no first answer.
    std::function<Result<CtlQuestion>(const Answer&)> then{};
    // These are for a terminal while the answer is still to come: `watched` is asked meanwhile, and
    // `progress` shows its answer, after so long.
    std::vector<std::string> watched{};
    std::string (*progress)(const Answer&, Nanos) = nullptr;
    // Above 0: the question is asked again after each such span, until somebody interrupts it. An
    // answer is shown when its text is another one.
    Nanos every{};
    // Names the node whose agentd is asked if the command line names none; empty: CtlTool::find
    // decides.
    std::string node{};
    bool bytes = false;  // what it shows is no JSON, and --json is refused
    // Set: it asks as often as it needs to, and makes what is shown. `patience`: as --patience.
    std::function<Result<CtlShown>(const AskPart& ask, Nanos patience, bool json)> asks{};
};

struct CtlTool {
    CommandLine line;  // its options come after the common ones
    const char *node_help, *socket_help, *json_help;
    // Parses the words that are no options. Errors: wrong usage.
    std::function<Result<CtlQuestion>(std::span<char*> words)> parse;
    // The daemon's socket, from --socket and --node (tools/common/paths.hpp).
    Result<std::string> (*find)(const std::string& socket, const std::string& node);
    bool of_node = false;  // a node's daemon is asked, not the market
};

// The exit status: 0, 1 (failed) or 2 (wrong usage), the latter two with one line on stderr.
int run_ctl(CtlTool tool, int argc, char** argv);

}  // namespace souk::tools
