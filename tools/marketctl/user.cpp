// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/marketctl/user.hpp"

#include "kernel/base/money.hpp"
#include "tools/common/table.hpp"
#include "tools/marketctl/views.hpp"

namespace souk::tools {
namespace {

Result<std::string> users_text(const Answer& users) {
    Table table({{"User"},
                 {"UID", true},
                 {"Spend/day", true},
                 {"Today", true},
                 {"Jobs", true},
                 {"Run", true},
                 {"CPUs", true},
                 {"In use", true},
                 {"Held", true}});
    return table.text_of(users, [](const Json& u) -> std::vector<std::string> {
        return {field(u, "user"),        field(u, "uid"),          field(u, "spend_per_day"),
                field(u, "spent_today"), field(u, "jobs"),         field(u, "running_jobs"),
                field(u, "cpus"),        field(u, "running_cpus"), field(u, "held_jobs")};
    });
}

// "none", or what `check` takes.
template <class F>
Status add(CtlQuestion& question, const char* key, const std::string& value, F check) {
    if (value.empty()) return {};
    if (value != "none")
        if (const auto good = check(value); !good)
            return fail("--" + std::string(key) + ": " + good.error().message);
    question.args.push_back(std::string(key) + "=" + value);
    return {};
}

}  // namespace

Result<CtlQuestion> user_question(std::span<char*> words, const UserOptions& o) {
    const std::string_view what = words.empty() ? "" : words[0];
    const std::string who = words.size() > 1 ? words[1] : "";
    const bool some = !(o.spend + o.jobs + o.cpus).empty();
    if (what != "show" && what != "limit" && what != "unlimit")
        return fail("user: show, limit or unlimit is wanted");
    if (words.size() > 2)
        return fail("user " + std::string(what) + ": unexpected argument '" + words[2] + "'");
    if (some && what != "limit")
        return fail("--spend-per-day, --jobs and --cpus are for user limit");
    if (what == "show") return CtlQuestion{"user-show", {who.empty() ? "-" : who}, users_text};
    if (who.empty()) return fail("user " + std::string(what) + ": a user is missing");
    CtlQuestion question{"user-limit", {who}, nullptr};
    if (what == "unlimit") {
        for (const char* key : {"spend-per-day", "jobs", "cpus"})
            question.args.push_back(std::string(key) + "=none");
        return question;
    }
    if (!some) return fail("user limit: --spend-per-day, --jobs or --cpus is wanted");
    const auto whole = [](const std::string& text) { return parse_whole(text, 0, INT32_MAX); };
    TRY(add(question, "spend-per-day", o.spend,
            [](const std::string& text) { return parse_money(text); }));
    TRY(add(question, "jobs", o.jobs, whole));
    TRY(add(question, "cpus", o.cpus, whole));
    return question;
}

Result<std::string> web_token_text(const Answer& answer) {
    TRY_ASSIGN(const Json token, parse_object(answer));
    return field(token, "token");
}

}  // namespace souk::tools
