// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/marketctl/wait.hpp"

#include "kernel/base/cause.hpp"
#include "kernel/base/units.hpp"
#include "tools/common/job_state.hpp"
#include "tools/common/table.hpp"

namespace souk::tools {
namespace {

Result<std::string> order_text(const Answer& answer) {
    TRY_ASSIGN(const Json o, parse_object(answer));
    std::string text = field(o, "message");
    if (o.contains("pause_ms"))
        text += ": it stood still for " + milliseconds(o, "pause_ms") + " of " +
                milliseconds(o, "total_ms");
    if (o.contains("bytes")) text += (o.contains("pause_ms") ? ", " : ": ") + bytes(o, "bytes");
    return o.value("done", false) ? text : std::string();
}

std::string order_progress(const Answer& answer, Nanos after) {
    const auto job = parse_object(answer);
    if (!job) return {};
    std::string text = "job " + field(*job, "id") + ": " + job_state(*job);
    if (const std::string to = field(*job, "going_to"); to != "-") text += " to " + to;
    text += ", " + human_span(after);
    if (const std::string part = sent(*job); part != "-") return text + ", " + part;
    if (job->value("forecast_total_ms", 0.0) > 0)
        text += " of about " + milliseconds(*job, "forecast_total_ms");
    return text;
}

Status order_verdict(const Answer& answer) {
    TRY_ASSIGN(const Json o, parse_object(answer));
    if (o.value("done", false)) return {};
    return fail(cause_named(field(o, "message_code")),
                "job " + field(o, "id") + ": " + field(o, "message"));
}

}  // namespace

void wait_for_order(CtlQuestion& question, int64_t limit_s) {
    question.text = order_text;
    question.verdict = order_verdict;
    const std::string job = question.args[0],
                      node = question.args.size() == 3 ? question.args[1] : "-";
    const std::string what = question.verb == "freeze" ? "freeze" : "run";
    question.then = [=](const Answer& answer) -> Result<CtlQuestion> {
        TRY_ASSIGN(const Json o, parse_object(answer));
        const auto count = [&](const char* key) {
            return std::to_string(o.value(key, uint64_t{0}));
        };
        return CtlQuestion{
            "await",
            {job, node, what, count("failures"), count(what == "freeze" ? "freezes" : "migrations"),
             std::to_string(limit_s * 1000)},
            nullptr,
            {},
            nullptr,
            {},
            {"job", job},
            order_progress};
    };
}

}  // namespace souk::tools
