// SPDX-License-Identifier: GPL-2.0-or-later
// marketctl: the market's state, and orders by hand for operators and tests.
#include <algorithm>
#include <string_view>

#include "kernel/base/ids.hpp"
#include "market/wire/paths.hpp"
#include "tools/common/args.hpp"
#include "tools/common/ask.hpp"
#include "tools/marketctl/views.hpp"

namespace souk::tools {
namespace {

constexpr const char* tool = "marketctl";

struct Verb {
    const char *name, *alias;
    // What it takes: J a job, N a node, n a node that may be left out.
    const char* takes;
    bool may_hold;
    Result<std::string> (*text)(const std::string& json);  // null: says nothing
};

constexpr Verb verbs[] = {
    {"status", nullptr, "", false, status_text},
    {"list-jobs", "lj", "", false, jobs_text},
    {"list-providers", "lp", "", false, providers_text},
    {"job", nullptr, "J", false, job_text},
    {"cancel", nullptr, "J", false, nullptr},
    {"move", nullptr, "JN", true, nullptr},
    {"freeze", nullptr, "J", true, nullptr},
    {"thaw", nullptr, "Jn", true, nullptr},
    {"release", nullptr, "J", false, nullptr},
};

struct Request {
    const Verb* verb;
    std::vector<std::string> args;
};

Result<Request> parse_words(std::span<char*> words, bool hold) {
    const std::string_view name = words.empty() ? "" : words[0];
    const Verb* verb = std::find_if(std::begin(verbs), std::end(verbs), [&](const Verb& v) {
        return name == v.name || (v.alias && name == v.alias);
    });
    if (verb == std::end(verbs))
        return fail(name.empty() ? "a verb is missing" : "'" + std::string(name) + "' is not a verb");
    Request request{verb, {}};
    const std::string_view takes = verb->takes;
    for (size_t i = 0; i < takes.size(); ++i) {
        const std::string_view word = i + 1 < words.size() ? words[i + 1] : "";
        if (takes[i] == 'n' && word.empty()) {
            request.args.emplace_back("-");
        } else if (takes[i] == 'J') {
            if (word.empty()) return fail(std::string(name) + ": a job's id is missing");
            TRY_ASSIGN(const JobId id, parse_job_id(word));
            request.args.push_back(id.text());
        } else {
            if (word.empty()) return fail(std::string(name) + ": a node's name is missing");
            if (!valid_node_name(word)) return fail("'" + std::string(word) + "' is not a node name");
            request.args.emplace_back(word);
        }
    }
    if (words.size() > takes.size() + 1)
        return fail(std::string(name) + ": unexpected argument '" + words[takes.size() + 1] + "'");
    if (hold && !verb->may_hold) return fail(std::string(name) + ": --hold is for move, freeze and thaw");
    if (verb->may_hold) request.args.emplace_back(hold ? "hold" : "once");
    return request;
}

int failed(const Error& error) {
    complain(tool, error.message);
    return 1;
}

int run(int argc, char** argv) {
    std::string node, socket;
    bool json = false, hold = false;
    const CommandLine line{
        tool,
        "[options] VERB [ARGS]",
        "Shows the market, and gives it orders by hand.",
        {{0, "node", "NAME", "ask through this node's agentd (default: the market on this machine)", set_text(node)},
         {0, "socket", "PATH", "ask through this daemon's socket", set_text(socket)},
         {0, "json", nullptr, "print the market's JSON", set_flag(json)},
         {0, "hold", nullptr, "with move, freeze, thaw: until 'release', the market does not undo it", set_flag(hold)}},
        "\n  status              the market, its jobs and what they are worth\n"
        "  list-jobs (lj)      every job\n"
        "  list-providers (lp) every provider\n"
        "  job ID              all about one job\n"
        "  cancel ID           end a job\n"
        "  move ID NODE        move a job to a node\n"
        "  freeze ID           freeze a job\n"
        "  thaw ID [NODE]      let a frozen job run (there)\n"
        "  release ID          the job is the market's again\n",
        true};
    std::span<char*> words;
    switch (parse(line, argc, argv, words)) {
        case Parsed::done: return 0;
        case Parsed::failed: return 2;
        case Parsed::go: break;
    }
    const auto request = parse_words(words, hold);
    if (!request) {
        complain(tool, request.error().message + " (see marketctl --help)");
        return 2;
    }
    const auto path = wire::find_market(socket, node);
    if (!path) return failed(path.error());
    const auto answer = ask(*path, request->verb->name, request->args);
    if (!answer) return failed(answer.error());
    if (!json && !request->verb->text) return 0;
    const Result<std::string> text = json ? *answer : request->verb->text(*answer);
    if (!text) return failed(text.error());
    if (const Status printed = print(*text); !printed) return failed(printed.error());
    return 0;
}

}  // namespace
}  // namespace souk::tools

int main(int argc, char** argv) { return souk::tools::run(argc, argv); }
