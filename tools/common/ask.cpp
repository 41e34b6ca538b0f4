// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/ask.hpp"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "kernel/base/text.hpp"
#include "kernel/base/units.hpp"
#include "kernel/sys/host/clock.hpp"
#include "tools/common/link.hpp"
#include "tools/common/paths.hpp"

namespace souk::tools {

namespace {

constexpr Nanos part_max = Nanos::from_s(30);

// Such a question changes nothing: it may be asked once more though nobody knows whether it was
// heard.
bool only_asks(const std::string& verb) {
    constexpr std::string_view questions[] = {"status",         "list-jobs",
                                              "list-providers", "job",
                                              "account",        "receipts",
                                              "statement",      "prices",
                                              "quote",          "why",
                                              "report",         "user-show",
                                              "ledger-verify",  "provider-status",
                                              "node-status",    "provider-history",
                                              "output"};
    return std::find(std::begin(questions), std::end(questions), verb) != std::end(questions);
}

// A daemon that is being started again has no socket, a dead one, or no market yet.
bool may_come(const Error& e, const std::string& verb) {
    if (e.code == ECONNRESET || e.code == EPIPE) return only_asks(verb);
    return e.code == ENOENT || e.code == ECONNREFUSED || e.code == EHOSTDOWN;
}

// `waiting` each second until it comes.
Result<wire::CtlReply> hear(Link& link, const Waiting& waiting) {
    constexpr Nanos step = Nanos::from_s(1);
    if (!waiting) return link.expect<wire::CtlReply>(part_max);
    for (Nanos waited = step;; waited += step) {
        auto reply = link.expect<wire::CtlReply>(step);
        if (reply || reply.error().code != ETIMEDOUT || waited >= part_max) return reply;
        waiting(waited);
    }
}

Result<Answer> ask_once(const std::string& socket, const std::string& verb,
                        const std::vector<std::string>& args, const Waiting& waiting) {
    constexpr size_t parts_max = 4096;
    TRY_ASSIGN(Link link, Link::open(socket));
    Answer parts;
    wire::CtlRequest request{1, 0, verb, args, {}};
    do {
        if (parts.size() == parts_max) return fail("the daemon's answer has no end");
        link.queue(request);
        TRY_ASSIGN(wire::CtlReply reply, hear(link, waiting));
        if (!reply.ok) return tl::unexpected(refusal(reply));
        // An answer that is not there yet is asked for again.
        if (!reply.json.empty() || reply.next.empty())
            parts.push_back(std::move(reply.json));
        else if (waiting)
            waiting({});
        request.after = std::move(reply.next);
        ++request.request;
    } while (!request.after.empty());
    return parts;
}

std::string directory_of(const std::string& path) { return path.substr(0, path.rfind('/') + 1); }

}  // namespace

Result<Answer> ask_again(const std::function<Result<Answer>()>& once, const std::string& verb,
                         Nanos patience) {
    const Nanos until = monotonic_now() + patience;
    Nanos pause = Nanos::from_ms(50);
    for (;;) {
        auto answer = once();
        if (answer || !may_come(answer.error(), verb)) return answer;
        const Nanos left = until - monotonic_now();
        if (left.ns <= 0) {
            if (patience.ns == 0) return answer;
            return fail(CauseCode::away,
                        answer.error().message + "; it was tried again for " + span_text(patience));
        }
        const Nanos wait = std::min(pause, left);
        const timespec span{wait.ns / 1'000'000'000, wait.ns % 1'000'000'000};
        nanosleep(&span, nullptr);
        pause = std::min(Nanos{pause.ns * 2}, Nanos::from_ms(500));
    }
}

Result<Answer> ask(const FindSocket& find, const std::string& verb,
                   const std::vector<std::string>& args, Nanos patience, const Waiting& waiting) {
    return ask_again(
        [&]() -> Result<Answer> {
            const auto socket = find();
            auto answer =
                socket ? ask_once(*socket, verb, args, waiting)
                       : Result<Answer>(tl::unexpected(Error{ENOENT, socket.error().message}));
            // If not even the directory is there, no daemon is being started again, so we do not
            // wait.
            const std::string directory = socket ? directory_of(*socket) : wire::run_directory();
            if (!answer && access(directory.c_str(), F_OK) != 0)
                return fail(CauseCode::away, answer.error().message);
            return answer;
        },
        verb, patience);
}

Result<ListPart> ask_part(const FindSocket& find, const std::string& verb,
                          const std::vector<std::string>& args, const std::string& after,
                          Nanos limit) {
    TRY_ASSIGN(const std::string socket, find());
    TRY_ASSIGN(Link link, Link::open(socket));
    link.queue(wire::CtlRequest{1, 0, verb, args, after});
    TRY_ASSIGN(wire::CtlReply reply, link.expect<wire::CtlReply>(limit));
    if (!reply.ok) return tl::unexpected(refusal(reply));
    return ListPart{std::move(reply.json), std::move(reply.next)};
}

Result<std::string> joined(Answer parts) {
    std::string all = std::move(parts.front());
    for (size_t i = 1; i < parts.size(); ++i) {
        if (!all.ends_with(']') || !parts[i].starts_with('['))
            return fail("the daemon's answer is not a JSON list");
        all.pop_back();
        const bool both = all != "[" && parts[i] != "[]";
        all.append(both ? "," : "").append(parts[i], 1);
        parts[i] = {};
    }
    return all;
}

// Others have said some of it, of their jobs and nodes. A terminal is to show that, and not to do
// what it says.
Status print(const std::string& text) {
    std::string lines;
    for (size_t at = 0; at <= text.size();) {
        const size_t end = std::min(text.find('\n', at), text.size());
        lines += blank_controls(std::string_view(text).substr(at, end - at)) + "\n";
        at = end + 1;
    }
    return write_all(STDOUT_FILENO, lines, "stdout");
}

}  // namespace souk::tools
