// SPDX-License-Identifier: GPL-2.0-or-later
// Command lines from a table, over getopt_long: one row for each option, and --help is made from
// the rows. Costs a tool no start-up time. Errors are one line that names the tool and the option;
// the caller exits 2.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"
#include "kernel/sys/host/complain.hpp"

namespace souk::tools {

struct Option {
    char letter;       // 0: none
    const char* name;  // long name
    // what it takes, as help shows it; null: nothing; "[=FILE]": may be left out
    const char* value;
    const char* help;
    // null when an optional value was left out, or for a flag
    std::function<Status(const char*)> set;
    std::string usual = {};  // its default, as help shows it
    bool required = false, once = false;
};

// A word that is needed and is no option.
struct Argument {
    const char* name;
    const char* help;
    std::function<Status(const char*)> set;
    bool several = false;  // it is the last one, and takes all that follow
};

// Help shows this for a thing that a tool can be told to do: "move ID NODE". Words in capitals
// stand for something of that kind.
struct VerbHelp {
    const char* words;
    const char* help;
};

struct CommandLine {
    const char* tool;
    const char* synopsis = nullptr;  // "[options] PROGRAM [ARGS]"; null: made from what is below
    const char* summary;             // one line
    std::vector<Option> options = {};
    const char* footer = "";
    bool mixed = false;  // options may stand after arguments too
    std::vector<VerbHelp> verbs = {};
    std::vector<Argument> arguments = {};  // parse_options() takes them
    // Command lines below this one, for run_command(): their `tool` is this one's and a word more.
    std::vector<CommandLine> commands = {};
    std::function<int()> run = {};
    std::string at = {};  // where its words stand, if not on the command line: "job.sh line 2: "
    // Names what does here what an unknown option ("--time", "-t") does elsewhere; empty: not
    // known.
    std::string (*elsewhere)(std::string_view option) = nullptr;
};

enum class Parsed { go, done, failed };  // done: help or version was printed

// `rest`: what is not an option. Adds --help, --version, and --help-source: what help says as JSON,
// from which the man page and the completion of the shells are made (scripts/manual).
Parsed parse(const CommandLine& line, int argc, char** argv, std::span<char*>& rest);

// Parses the words of a program that takes options and `arguments` alone. Nothing: the program goes
// on; else it ends with this status, and has said why.
std::optional<int> parse_options(const CommandLine& line, int argc, char** argv);

// Parses the command line of the command that argv names, and runs it. The exit status.
int run_command(const CommandLine& line, int argc, char** argv);

// Whoever started us may have closed 0, 1 or 2: no socket may take their place, and what is written
// there fails.
void keep_standard_fds();

// A copy that lives as long as the program, for a row that is made while it runs.
const char* lasting(std::string text);

// Ready-made setters.
std::function<Status(const char*)> set_flag(bool& flag);
std::function<Status(const char*)> set_text(std::string& text);
std::function<Status(const char*)> add_text(std::vector<std::string>& texts);
// A time (kernel/base/units) above 0; a number alone is in units of `plain`.
std::function<Status(const char*)> set_span(Nanos& span, Nanos plain, Nanos most);
// A whole number in [lo, hi], decimal digits alone.
Result<int64_t> parse_whole(std::string_view text, int64_t lo, int64_t hi);

}  // namespace souk::tools
