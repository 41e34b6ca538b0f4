// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/ctl.hpp"

#include "kernel/base/units.hpp"

namespace souk::tools {
namespace {

Status ask_and_show(const CtlTool& tool, const CtlQuestion& question, const std::string& socket,
                    const std::string& node, bool json, Nanos patience) {
    Answer answer;
    if (question.here) {
        TRY_ASSIGN(std::string own, question.here());
        answer = {std::move(own)};
    } else {
        const auto find = [&] { return tool.find(socket, node); };
        TRY_ASSIGN(answer, ask(find, question.verb, question.args, patience));
        if (question.then) {
            TRY_ASSIGN(const CtlQuestion next, question.then(answer));
            if (next.here) {
                TRY_ASSIGN(std::string own, next.here());
                answer = {std::move(own)};
            } else if (!next.verb.empty()) {
                TRY_ASSIGN(answer, ask(find, next.verb, next.args, patience));
            }
        }
    }
    const Status verdict = question.verdict ? question.verdict(answer) : Status{};
    if (!json && !question.text) return verdict;
    TRY_ASSIGN(const std::string text, json ? joined(std::move(answer)) : question.text(answer));
    if (!text.empty()) TRY(print(text));
    return verdict;
}

}  // namespace

int run_ctl(CtlTool tool, int argc, char** argv) {
    keep_standard_fds();
    std::string node, socket;
    bool json = false;
    Nanos patience = Nanos::from_s(5);
    const Option common[] = {
        {0, "node", "NAME", tool.node_help, set_text(node)},
        {0, "machine", "NAME", "the same as --node", set_text(node)},
        {0, "socket", "PATH", tool.socket_help, set_text(socket)},
        {0, "patience", "TIME",
         "how long to try again while the daemon is away (default 5s; 0: not at all)",
         [&](const char* t) -> Status {
             TRY_ASSIGN(patience, parse_span(t, Nanos::from_s(1), Nanos{}, Nanos::from_s(86'400)));
             return {};
         }},
        {0, "json", nullptr, tool.json_help, set_flag(json)}};
    tool.line.options.insert(tool.line.options.begin(), std::begin(common), std::end(common));
    tool.line.mixed = true;
    std::span<char*> words;
    switch (parse(tool.line, argc, argv, words)) {
        case Parsed::done: return 0;
        case Parsed::failed: return 2;
        case Parsed::go: break;
    }
    const auto question = tool.parse(words);
    if (!question) {
        complain(tool.line.tool, question.error().message + " (see " + tool.line.tool + " --help)");
        return 2;
    }
    if (const Status shown = ask_and_show(tool, *question, socket, node, json, patience); !shown) {
        complain(tool.line.tool, shown.error().message);
        return 1;
    }
    return 0;
}

}  // namespace souk::tools
