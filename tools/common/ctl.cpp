// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/ctl.hpp"

#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <utility>

#include "kernel/base/cause.hpp"
#include "kernel/base/text.hpp"
#include "kernel/base/units.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/host/fd.hpp"
#include "tools/common/paths.hpp"
#include "tools/common/remote.hpp"

namespace souk::tools {
namespace {

// The command line says with these where the question goes.
struct Way {
    std::string node, machine, socket, market, cert;
    bool json = false;
    Nanos patience = Nanos::from_s(5);
};

using Ask = std::function<Result<Answer>(const std::string&, const std::vector<std::string>&,
                                         const Waiting&)>;

// How the daemon is asked that the command line names.
struct Asked {
    Ask whole;
    AskPart part;
};

// Says once that the daemon does not answer. Where the question has words for it, also writes how
// far it is, in one line of a terminal again and again, and takes that away at the end.
class Progress {
  public:
    Progress(const char* tool, const CtlQuestion& question, const Ask& ask)
        : tool_(tool), question_(question), ask_(ask), since_(monotonic_now()) {}
    ~Progress() {
        if (shown_) (void)write_all(STDERR_FILENO, "\r\x1b[K", "stderr");
    }
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    Waiting hook() {
        const bool shows = question_.progress && ::isatty(STDERR_FILENO) != 0;
        return [this, shows](Nanos silent) {
            if (silent >= silent_for && !std::exchange(said_, true))
                (void)write_all(
                    STDERR_FILENO,
                    tool_ + ": no answer for " + human_span(silent) + "; it is waited for\n",
                    "stderr");
            else if (shows && silent < silent_for)
                show();
        };
    }

  private:
    void show() {
        const auto answer = ask_(question_.watched.front(),
                                 {question_.watched.begin() + 1, question_.watched.end()}, {});
        if (!answer) return;
        shown_ = true;
        const std::string line = question_.progress(*answer, monotonic_now() - since_);
        (void)write_all(STDERR_FILENO, "\r\x1b[K" + blank_controls(line), "stderr");
    }

    static constexpr Nanos silent_for = Nanos::from_s(5);
    const std::string tool_;
    const CtlQuestion& question_;
    const Ask& ask_;
    const Nanos since_;
    bool shown_ = false, said_ = false;
};

Result<Asked> way_of(const CtlTool& tool, const Way& way) {
    TRY_ASSIGN(const auto remote, remote_of({way.socket, way.node, way.market, way.cert}, [&] {
                   return tool.find("", way.machine).has_value();
               }));
    if (!remote) {
        const std::string& node = way.node.empty() ? way.machine : way.node;
        const auto find = [&tool, &way, node] { return tool.find(way.socket, node); };
        return Asked{[&way, find](const auto& verb, const auto& args, const auto& waiting) {
                         return ask(find, verb, args, way.patience, waiting);
                     },
                     [find](const auto& verb, const auto& args, const auto& after, Nanos limit) {
                         return ask_part(find, verb, args, after, limit);
                     }};
    }
    if (tool.of_node && way.machine.empty())
        return fail(CauseCode::invalid, "which node? --machine NAME");
    return Asked{
        [&tool, &way, remote = *remote](const auto& verb, const auto& args, const auto&) {
            return tool.of_node ? ask_node_at(remote, way.machine, verb, args, way.patience)
                                : ask_market_at(remote, verb, args, way.patience);
        },
        [remote = *remote](const auto& verb, const auto& args, const auto& after, Nanos limit) {
            return ask_market_part_at(remote, verb, args, after, limit);
        }};
}

// Asks the agentd of that node in a market of `souk up`, else that of this machine, though a market
// be here too.
void ask_home(CtlTool& tool, Way& way, const std::string& home) {
    if (is_remote_asked(way.market, way.cert)) return;
    tool.find = wire::find_agentd;
    if (way.socket.empty() && way.node.empty() && !std::getenv("SOUK_NODE") &&
        wire::find_agentd("", home))
        way.node = home;
}

Result<Answer> ask_one(const char* tool, const CtlQuestion& question, const Ask& ask) {
    if (question.here) {
        TRY_ASSIGN(std::string own, question.here());
        return Answer{std::move(own)};
    }
    Progress progress(tool, question, ask);
    return ask(question.verb, question.args, progress.hook());
}

Status ask_and_show(const char* tool, CtlQuestion question, const Ask& ask, bool json) {
    Answer answer;
    for (;;) {
        TRY_ASSIGN(answer, ask_one(tool, question, ask));
        if (question.here || !question.then) break;
        TRY_ASSIGN(CtlQuestion next, question.then(answer));
        if (next.then) {
            question = std::move(next);
            continue;
        }
        if (next.here || !next.verb.empty()) {
            TRY_ASSIGN(answer, ask_one(tool, next, ask));
        }
        break;
    }
    Status verdict = question.verdict ? question.verdict(answer) : Status{};
    if (!json && !question.text) return verdict;
    TRY_ASSIGN(const std::string text, json ? joined(std::move(answer)) : question.text(answer));
    if (!text.empty()) TRY(print(text));
    return verdict;
}

Status show_asked(const CtlQuestion& question, const Asked& asked, const Way& way) {
    TRY_ASSIGN(const CtlShown shown, question.asks(asked.part, way.patience, way.json));
    TRY(print(shown.text));
    return shown.verdict;
}

Status watch(const CtlQuestion& question, const Ask& ask, bool json) {
    std::string shown;
    for (;;) {
        TRY_ASSIGN(Answer answer, ask(question.verb, question.args, {}));
        TRY_ASSIGN(std::string text, question.text(answer));
        if (text != shown) {
            TRY_ASSIGN(const std::string line,
                       json ? joined(std::move(answer)) : Result<std::string>(text));
            TRY(print(line));
            shown = std::move(text);
        }
        const timespec pause = {question.every.ns / 1'000'000'000,
                                question.every.ns % 1'000'000'000};
        ::nanosleep(&pause, nullptr);
    }
}

}  // namespace

int run_ctl(CtlTool tool, int argc, char** argv) {
    keep_standard_fds();
    Way way;
    const Option common[] = {
        {0, "node", "NAME", tool.node_help, set_text(way.node)},
        {0, "machine", "NAME",
         tool.of_node ? "the same; with --cert: that node, on whatever host it is"
                      : "the same as --node",
         set_text(way.machine)},
        {0, "socket", "PATH", tool.socket_help, set_text(way.socket)},
        {0, "market", "HOST:PORT",
         "the market, on another host (default $SOUK_MARKET, then the file `market` beside the "
         "certificate)",
         set_text(way.market)},
        {0, "cert", "DIR",
         "your key and certificate, as souk operator add made them (default $SOUK_CERT, then "
         "~/.config/souk/operator)",
         set_text(way.cert)},
        {0, "patience", "TIME",
         "how long to try again while the daemon is away (default 5s; 0: not at all)",
         [&](const char* t) -> Status {
             TRY_ASSIGN(way.patience,
                        parse_span(t, Nanos::from_s(1), Nanos{}, Nanos::from_s(86'400)));
             return {};
         }},
        {0, "json", nullptr, tool.json_help, set_flag(way.json)}};
    tool.line.options.insert(tool.line.options.begin(), std::begin(common), std::end(common));
    tool.line.mixed = true;
    std::span<char*> words;
    switch (parse(tool.line, argc, argv, words)) {
        case Parsed::done: return 0;
        case Parsed::failed: return 2;
        case Parsed::go: break;
    }
    const auto question = tool.parse(words);
    if (!question) return complain_usage(tool.line.tool, question.error().message);
    if (!tool.of_node && way.node.empty() && !is_remote_asked(way.market, way.cert))
        way.node = std::exchange(way.machine, {});
    if (question->bytes && way.json)
        return complain_usage(tool.line.tool, question->verb + ": it writes bytes, not --json");
    if (!question->node.empty()) ask_home(tool, way, question->node);
    const auto ask = way_of(tool, way);
    const auto show = [&]() -> Status {
        if (!ask) return tl::unexpected(ask.error());
        try {
            if (question->asks) return show_asked(*question, *ask, way);
            return question->every.ns > 0
                       ? watch(*question, ask->whole, way.json)
                       : ask_and_show(tool.line.tool, *question, ask->whole, way.json);
        } catch (const std::exception& e) {  // a number is a text in it, and the like
            return fail("the answer is none that this program can read: " + std::string(e.what()));
        }
    };
    const Status shown = show();
    if (!shown) {
        complain(tool.line.tool, shown.error());
        return 1;
    }
    return 0;
}

}  // namespace souk::tools
