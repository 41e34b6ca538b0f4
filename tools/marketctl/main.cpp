// SPDX-License-Identifier: GPL-2.0-or-later
// marketctl: the market's state, and orders by hand for operators and tests.
#include <algorithm>
#include <string_view>

#include "kernel/base/ids.hpp"
#include "market/wire/paths.hpp"
#include "tools/common/ctl.hpp"
#include "tools/marketctl/views.hpp"

namespace souk::tools {
namespace {

struct Verb {
    const char *name, *alias;
    // What it takes: J a job, N a node, n a node that may be left out.
    const char* takes;
    bool may_hold;
    Result<std::string> (*text)(const Answer&);  // null: says nothing
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

Result<CtlQuestion> parse_words(std::span<char*> words, bool hold) {
    const std::string_view name = words.empty() ? "" : words[0];
    const Verb* verb = std::find_if(std::begin(verbs), std::end(verbs), [&](const Verb& v) {
        return name == v.name || (v.alias && name == v.alias);
    });
    if (verb == std::end(verbs))
        return fail(name.empty() ? "a verb is missing" : "'" + std::string(name) + "' is not a verb");
    CtlQuestion question{verb->name, {}, verb->text};
    const std::string_view takes = verb->takes;
    for (size_t i = 0; i < takes.size(); ++i) {
        const std::string_view word = i + 1 < words.size() ? words[i + 1] : "";
        if (takes[i] == 'n' && word.empty()) {
            question.args.emplace_back("-");
        } else if (takes[i] == 'J') {
            if (word.empty()) return fail(std::string(name) + ": a job's id is missing");
            TRY_ASSIGN(const JobId id, parse_job_id(word));
            question.args.push_back(id.text());
        } else {
            if (word.empty()) return fail(std::string(name) + ": a node's name is missing");
            if (!valid_node_name(word)) return fail("'" + std::string(word) + "' is not a node name");
            question.args.emplace_back(word);
        }
    }
    if (words.size() > takes.size() + 1)
        return fail(std::string(name) + ": unexpected argument '" + words[takes.size() + 1] + "'");
    if (hold && !verb->may_hold) return fail(std::string(name) + ": --hold is for move, freeze and thaw");
    if (verb->may_hold) question.args.emplace_back(hold ? "hold" : "once");
    return question;
}

int run(int argc, char** argv) {
    bool hold = false;
    CtlTool tool{
        {"marketctl",
         "[options] VERB [ARGS]",
         "Shows the market, and gives it orders by hand.",
         {{0, "hold", nullptr, "with move, freeze, thaw: until 'release', the market does not undo it",
           set_flag(hold)}},
         "\n  status              the market, its jobs and what they are worth\n"
         "  list-jobs (lj)      every job\n"
         "  list-providers (lp) every provider\n"
         "  job ID              all about one job\n"
         "  cancel ID           end a job\n"
         "  move ID NODE        move a job to a node\n"
         "  freeze ID           freeze a job\n"
         "  thaw ID [NODE]      let a frozen job run (there)\n"
         "  release ID          the job is the market's again\n"},
        "ask through this node's agentd (default: the market on this machine)",
        "ask through this daemon's socket",
        "print the market's JSON",
        [&hold](std::span<char*> words) { return parse_words(words, hold); },
        wire::find_market};
    return run_ctl(std::move(tool), argc, argv);
}

}  // namespace
}  // namespace souk::tools

int main(int argc, char** argv) { return souk::tools::run(argc, argv); }
