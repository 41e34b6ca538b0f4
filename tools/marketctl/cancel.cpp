// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/marketctl/cancel.hpp"

#include "kernel/base/cause.hpp"
#include "kernel/base/ids.hpp"
#include "kernel/base/number.hpp"
#include "tools/common/entries.hpp"
#include "tools/common/table.hpp"

namespace souk::tools {
namespace {

// One job says nothing more.
Result<std::string> cancelled_text(const Answer& answer) {
    TRY_ASSIGN(const Json s, parse_object(answer));
    if (!s.contains("count")) return std::string();
    const uint64_t count = s.value("count", uint64_t{0});
    return std::to_string(count) + (count == 1 ? " job is" : " jobs are") + " being cancelled";
}

// The daemon is asked for `first`, and its answer says what to cancel.
CtlQuestion cancel_after(CtlQuestion first,
                         std::function<Result<std::string>(const Answer&)> whom) {
    first.text = cancelled_text;
    first.then = [whom = std::move(whom)](const Answer& answer) -> Result<CtlQuestion> {
        TRY_ASSIGN(std::string word, whom(answer));
        return CtlQuestion{"cancel", {std::move(word)}, nullptr};
    };
    return first;
}

CtlQuestion cancel_job(const JobId& id) {
    return cancel_after({"job", {id.text()}, nullptr},
                        [id](const Answer& answer) -> Result<std::string> {
                            TRY_ASSIGN(const Json job, parse_object(answer));
                            const bool array = job.value("array", "") == id.text();
                            return (array ? "array=" : "") + id.text();
                        });
}

Result<CtlQuestion> cancel_element(const JobId& array, std::string_view index) {
    const auto number = whole_number<int64_t>(index);
    if (!number) return fail("cancel: '" + std::string(index) + "' is no index of an array");
    return cancel_after({"list-jobs", {"state=live", "array=" + array.text()}, nullptr},
                        [array, number](const Answer& answer) -> Result<std::string> {
                            std::string id;
                            TRY(for_each_entry(answer, [&](const Json& job) {
                                if (job.value("array_index", int64_t{-1}) == *number)
                                    id = field(job, "id");
                            }));
                            if (!id.empty()) return id;
                            return fail(CauseCode::not_found, "cancel: array " + array.text() +
                                                                  " has no live job " +
                                                                  std::to_string(*number));
                        });
}

}  // namespace

Result<CtlQuestion> cancel_question(std::span<char*> words, const CancelOptions& o,
                                    const std::string& user) {
    const bool several = !(o.name + o.array).empty() || o.all || !user.empty();
    if (several && !words.empty())
        return fail("cancel: a job's id, or --name, --user, --array and --all");
    if (words.size() > 1)
        return fail("cancel: unexpected argument '" + std::string(words[1]) + "'");
    if (!several) {
        const std::string_view word = words.empty() ? "" : words[0];
        if (word.empty()) return fail("cancel: a job's id is missing");
        const size_t bracket = word.find('[');
        TRY_ASSIGN(const JobId id, parse_job_id(word.substr(0, bracket)));
        if (bracket == word.npos || word.substr(bracket) == "[*]") return cancel_job(id);
        if (!word.ends_with(']')) return fail("cancel: '" + std::string(word) + "' is no job");
        return cancel_element(id, word.substr(bracket + 1, word.size() - bracket - 2));
    }
    CtlQuestion question{"cancel", {}, cancelled_text};
    if (!o.name.empty()) question.args.push_back("name=" + o.name);
    if (!user.empty()) question.args.push_back("user=" + user);
    if (!o.array.empty()) {
        TRY_ASSIGN(const JobId array, parse_job_id(o.array));
        question.args.push_back("array=" + array.text());
    }
    if (o.all) question.args.emplace_back("all");
    return question;
}

}  // namespace souk::tools
