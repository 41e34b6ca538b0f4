// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/marketctl/why.hpp"

#include "kernel/base/cause.hpp"
#include "kernel/base/ids.hpp"
#include "kernel/base/json.hpp"
#include "market/core/reason.hpp"
#include "tools/common/job_state.hpp"
#include "tools/common/table.hpp"
#include "tools/marketctl/views.hpp"

namespace souk::tools {
namespace {

void write_code(JsonWriter& w, const char* kind, std::string_view code, std::string_view text,
                std::string_view means) {
    w.begin_object().field("kind", kind).field("code", code).field("text", text);
    w.field("means", means).end_object();
}

// The tables of codes, as JSON.
Result<std::string> codes() {
    JsonWriter w;
    w.begin_array();
    for (const market::ReasonWords& r : market::reason_table())
        write_code(w, "reason", r.name, r.text, r.means);
    for (const CauseWords& c : cause_table())
        if (c.code != CauseCode::none) write_code(w, "cause", c.name, c.text, c.means);
    return w.end_array().take();
}

// Shows the codes to people, as docs/reasons.md has them.
Result<std::string> codes_text(const Answer& answer) {
    std::string text, kind;
    for (const Json& r : parse_json(answer.front())) {
        if (const std::string is = field(r, "kind"); is != kind) {
            text += (kind.empty() ? "" : "\n\n") + ("| " + is) +
                    " | what is said | when, and what helps |\n|---|---|---|";
            kind = is;
        }
        const std::string said = r.value("text", "");
        text += "\n| `" + field(r, "code") + "` | " + (said.empty() ? "" : "`" + said + "`") +
                " | " + field(r, "means") + " |";
    }
    return text;
}

}  // namespace

Result<CtlQuestion> reasons_question(std::span<char*> words, const DecisionOptions& options) {
    if (words.empty()) return fail("why: a job or a node is missing (or: price JOB|NODE, codes)");
    const std::string name = words[0];
    if (name == "price" && words.size() > 1) return why_question(words.subspan(1), options);
    if (!options.at.empty()) return fail("why: --at is for why price");
    if (words.size() > 1) return fail("why: unexpected argument '" + std::string(words[1]) + "'");
    if (name == "codes") {
        CtlQuestion question{"", {}, codes_text};
        question.here = codes;
        return question;
    }
    const std::string_view rest = of_site(name).rest;
    if (!parse_job_id(rest) && !valid_node_name(rest))
        return fail("'" + name + "' is neither a job id nor a node name");
    return CtlQuestion{"why", {name}, reasons_text};
}

// The words, and the code of each behind them.
Result<std::string> reasons_text(const Answer& answer) {
    TRY_ASSIGN(const Json why, parse_object(answer));
    const bool of_job = why.contains("job");
    std::string text = (of_job ? "job " + field(why, "job") : "node " + field(why, "node")) + " (" +
                       state_word(field(why, "status")) + ")";
    if (!why.contains("reasons"))
        return text + " belongs to user " + field(why, "user") +
               ", who alone is told more of it, beside root";
    for (const Json& reason : why["reasons"])
        text += "\n  " + field(reason, "text") + "  [" + field(reason, "code") +
                (reason.contains("cause_code") ? ": " + field(reason, "cause_code") : "") + "]";
    return why["reasons"].empty() ? text + "\n  nothing is in its way" : text;
}

}  // namespace souk::tools
