// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/marketctl/decisions.hpp"

#include <fcntl.h>

#include <cerrno>
#include <ctime>

#include "kernel/base/ids.hpp"
#include "kernel/sys/host/fd.hpp"
#include "tools/common/program.hpp"
#include "tools/common/table.hpp"
#include "tools/marketctl/money.hpp"

namespace souk::tools {
namespace {

// The parts one after the other; the last line is printed with its end.
Result<std::string> log_text(const Answer& parts) {
    std::string text;
    for (const std::string& part : parts) {
        const Json list = parse_json(part);
        if (!list.is_array()) return fail("the daemon's answer is not a JSON list");
        for (const Json& piece : list)
            if (piece.is_string()) text += piece.get_ref<const std::string&>();
    }
    while (text.ends_with('\n')) text.pop_back();
    return text;
}

Result<std::string> why_text(const Answer& answer) {
    TRY_ASSIGN(const Json s, parse_object(answer));
    return field(s, "text");
}

// Asks souk-audit, which lies beside this program, what the log says.
Result<std::string> why(const std::string& log, const std::string& name, const std::string& at) {
    TRY_ASSIGN(const Fd file, memory_file("log", log));
    // souk-audit inherits it.
    if (::fcntl(file.get(), F_SETFD, 0) != 0) return fail_errno("hand over the log", errno);
    std::vector<std::string> arguments = {"--why", name, "--json"};
    if (!at.empty()) arguments.insert(arguments.end(), {"--at", at});
    arguments.push_back("/proc/self/fd/" + std::to_string(file.get()));
    TRY_ASSIGN(std::string json, output_of_sibling("souk-audit", arguments));
    while (json.ends_with('\n')) json.pop_back();
    return json;
}

}  // namespace

Result<CtlQuestion> decisions_question(std::span<char*> words, const DecisionOptions& o,
                                       const std::string& user) {
    if (words.empty() || std::string_view(words[0]) != "export")
        return fail("decisions: 'export' is what can be done");
    if (words.size() < 2) return fail("decisions export: a file is missing (- is stdout)");
    if (words.size() > 2)
        return fail("decisions export: unexpected argument '" + std::string(words[2]) + "'");
    CtlQuestion question{"decisions", {"-", "-", user.empty() ? "-" : user}, log_text};
    if (!o.from.empty()) {
        TRY_ASSIGN(const int64_t seconds, parse_moment("--from", o.from));
        question.args[0] = std::to_string(seconds);
    }
    if (!o.to.empty()) {
        TRY_ASSIGN(const int64_t seconds, parse_moment("--to", o.to));
        question.args[1] = std::to_string(seconds);
    }
    if (const std::string file = words[1]; file != "-") {
        question.text = nullptr;
        question.then = [file](const Answer& answer) -> Result<CtlQuestion> {
            TRY_ASSIGN(const std::string text, log_text(answer));
            TRY(create_file(AT_FDCWD, file, text + "\n"));
            return CtlQuestion{"", {}, nullptr};
        };
    }
    return question;
}

Result<CtlQuestion> why_question(std::span<char*> words, const DecisionOptions& o) {
    if (words.empty()) return fail("why price: a job or a node is missing");
    if (words.size() > 1)
        return fail("why price: unexpected argument '" + std::string(words[1]) + "'");
    const std::string name = words[0];
    if (!parse_job_id(name) && !valid_node_name(name))
        return fail("'" + name + "' is neither a job id nor a node name");
    std::string at, moment = std::to_string(::time(nullptr));
    if (!o.at.empty()) {
        TRY_ASSIGN(const int64_t seconds, parse_moment("--at", o.at));
        at = moment = std::to_string(seconds);
    }
    CtlQuestion question{"decisions", {moment, moment, "-"}, why_text};
    question.then = [name, at](const Answer& answer) -> Result<CtlQuestion> {
        TRY_ASSIGN(const std::string log, log_text(answer));
        CtlQuestion next{"", {}, nullptr};
        next.here = [log, name, at] { return why(log + "\n", name, at); };
        return next;
    };
    return question;
}

}  // namespace souk::tools
