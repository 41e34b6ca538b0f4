// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/marketctl/user.hpp"

#include "kernel/base/money.hpp"
#include "kernel/base/time_frames.hpp"
#include "tools/common/table.hpp"
#include "tools/marketctl/views.hpp"

namespace souk::tools {
namespace {

std::string allowance_text(const Json& u) {
    if (!u.contains("allowance")) return "-";
    return field(u, "allowance") + " a " + field(u, "every") +
           (u.value("expires", false) ? ", expires" : "");
}

Result<std::string> users_text(const Answer& users) {
    Table table({{"User"},
                 {"UID", true},
                 {"Spend/day", true},
                 {"Today", true},
                 {"Jobs", true},
                 {"Run", true},
                 {"CPUs", true},
                 {"In use", true},
                 {"Held", true},
                 {"Hours"},
                 {"Credit", true},
                 {"Allowance"},
                 {"Left", true}});
    return table.text_of(users, [](const Json& u) -> std::vector<std::string> {
        return {field(u, "user"),        field(u, "uid"),          field(u, "spend_per_day"),
                field(u, "spent_today"), field(u, "jobs"),         field(u, "running_jobs"),
                field(u, "cpus"),        field(u, "running_cpus"), field(u, "held_jobs"),
                u.value("hours", "-"),   field(u, "credit"),       allowance_text(u),
                field(u, "may_spend")};
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

const char* const for_user_limit =
    "--spend-per-day, --jobs, --cpus, --reserve, --hours, --credit, --allowance, --every and "
    "--expires are for user limit";

Result<CtlQuestion> user_question(std::span<char*> words, const UserOptions& o) {
    const std::string_view what = words.empty() ? "" : words[0];
    const std::string who = words.size() > 1 ? words[1] : "";
    const bool some = o.any();
    if (what != "show" && what != "limit" && what != "unlimit")
        return fail("user: show, limit or unlimit is wanted");
    if (words.size() > 2)
        return fail("user " + std::string(what) + ": unexpected argument '" + words[2] + "'");
    if (some && what != "limit") return fail(std::string(for_user_limit));
    if (what == "show") return CtlQuestion{"user-show", {who.empty() ? "-" : who}, users_text};
    if (who.empty()) return fail("user " + std::string(what) + ": a user is missing");
    CtlQuestion question{"user-limit", {who}, nullptr};
    if (what == "unlimit") {
        for (const char* key :
             {"spend-per-day", "jobs", "cpus", "reserve", "hours", "credit", "allowance"})
            question.args.push_back(std::string(key) + "=none");
        return question;
    }
    if (!some)
        return fail(
            "user limit: --spend-per-day, --jobs, --cpus, --reserve, --hours, --credit or "
            "--allowance is wanted");
    if (o.allowance.empty() && (o.expires || !o.every.empty()))
        return fail("user limit: --every and --expires are for --allowance");
    const auto whole = [](const std::string& text) { return parse_whole(text, 0, INT32_MAX); };
    const auto money = [](const std::string& text) { return parse_money(text); };
    TRY(add(question, "spend-per-day", o.spend, money));
    TRY(add(question, "credit", o.credit, money));
    TRY(add(question, "allowance", o.allowance, money));
    if (!o.allowance.empty() && o.allowance != "none") {
        question.args.push_back("every=" + (o.every.empty() ? "month" : o.every));
        question.args.push_back(o.expires ? "expires=yes" : "expires=no");
    }
    TRY(add(question, "jobs", o.jobs, whole));
    TRY(add(question, "cpus", o.cpus, whole));
    TRY(add(question, "reserve", o.reserve, whole));
    TRY(add(question, "hours", o.hours,
            [](const std::string& text) { return TimeFrames::parse_apart(text); }));
    return question;
}

Result<CtlQuestion> project_question(std::span<char*> words) {
    const std::string_view what = words.empty() ? "" : words[0];
    if (what != "show" && what != "add" && what != "remove")
        return fail("project: show, add or remove is wanted");
    if (words.size() < 2) return fail("project " + std::string(what) + ": a project is missing");
    if (words.size() > (what == "show" ? 2U : 3U))
        return fail("project " + std::string(what) + ": unexpected argument '" + words.back() +
                    "'");
    if (what == "remove" && words.size() < 3) return fail("project remove: a user is missing");
    if (what == "show") return CtlQuestion{"user-show", {words[1]}, users_text};
    const std::string who = words.size() > 2 ? words[2] : "-";
    return CtlQuestion{"project", {std::string(what), words[1], who}, nullptr};
}

Result<std::string> web_token_text(const Answer& answer) {
    TRY_ASSIGN(const Json token, parse_object(answer));
    return field(token, "token");
}

}  // namespace souk::tools
