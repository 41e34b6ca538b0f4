// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/ctl.hpp"

namespace souk::tools {
namespace {

Status ask_and_show(const CtlTool& tool, const CtlQuestion& question, const std::string& socket,
                    const std::string& node, bool json) {
    Answer answer;
    if (question.here) {
        TRY_ASSIGN(std::string own, question.here());
        answer = {std::move(own)};
    } else {
        TRY_ASSIGN(const std::string path, tool.find(socket, node));
        TRY_ASSIGN(answer, ask(path, question.verb, question.args));
        if (question.then) {
            TRY_ASSIGN(const CtlQuestion next, question.then(answer));
            if (!next.verb.empty()) {
                TRY_ASSIGN(answer, ask(path, next.verb, next.args));
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
    std::string node, socket;
    bool json = false;
    const Option common[] = {{0, "node", "NAME", tool.node_help, set_text(node)},
                             {0, "machine", "NAME", "the same as --node", set_text(node)},
                             {0, "socket", "PATH", tool.socket_help, set_text(socket)},
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
    if (const Status shown = ask_and_show(tool, *question, socket, node, json); !shown) {
        complain(tool.line.tool, shown.error().message);
        return 1;
    }
    return 0;
}

}  // namespace souk::tools
