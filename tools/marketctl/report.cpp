// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/marketctl/report.hpp"

#include <cstdio>
#include <ctime>
#include <utility>

#include "kernel/base/ids.hpp"
#include "tools/common/table.hpp"

namespace souk::tools {
namespace {

std::string factor(const Json& row, const char* key) {
    if (!row.contains(key)) return "-";
    char text[32];
    std::snprintf(text, sizeof text, "%.2f", row[key].get<double>());
    return text;
}

std::string share(const Json& row, const char* key) {
    if (!row.contains(key)) return "-";
    return std::to_string(static_cast<int64_t>(row[key].get<double>() * 100 + 0.5)) + "%";
}

Json hours_of(const Json& row, const char* key) {
    return row.contains(key) ? Json(row[key].get<double>() / 3'600) : Json();
}

Table report_table(const char* first) {
    return Table({{first},
                  {"Jobs", true},
                  {"Failed", true},
                  {"CPU-hours", true},
                  {"Used", true},
                  {"Efficiency", true},
                  {"Mean wait", true},
                  {"Slowdown", true},
                  {"Moves", true},
                  {"Freezes", true},
                  {"Paid", true},
                  {"Earned", true}});
}

std::vector<std::string> report_row(const Json& r) {
    std::string first = r.contains("user") ? field(r, "user") : field(r, "node");
    if (r.contains("day")) {
        const auto seconds = static_cast<time_t>(std::stoll("0" + r.value("day", "")));
        char text[32];
        std::tm date{};
        if (::gmtime_r(&seconds, &date) && std::strftime(text, sizeof text, "%F", &date) > 0)
            first = text;
    }
    const Json hours = {{"asked", hours_of(r, "cpu_asked_s")}, {"used", hours_of(r, "cpu_used_s")}};
    return {first,
            field(r, "jobs"),
            field(r, "failed"),
            factor(hours, "asked"),
            factor(hours, "used"),
            share(r, "efficiency"),
            duration(r, "wait_mean_s"),
            factor(r, "slowdown_mean"),
            field(r, "moves"),
            field(r, "freezes"),
            field(r, "paid"),
            field(r, "earned")};
}

constexpr const char* history_keys[] = {
    "id",         "user",         "uid",    "name", "command", "submitted_unix_s",  "ended_unix_s",
    "runtime_s",  "wait_s",       "value",  "cost", "cpus",    "memory_mb",         "migrations",
    "freezes",    "failed_moves", "places", "exit", "why",     "memory_peak_bytes", "cpu_used_s",
    "efficiency", "failures"};
constexpr const char* history_columns =
    "id,user,name,submitted,ended,run,wait,peak,efficiency,moves,freezes,places,cost,exit,command";
constexpr const char* report_keys[] = {"user",
                                       "node",
                                       "day",
                                       "jobs",
                                       "failed",
                                       "cpu_asked_s",
                                       "cpu_used_s",
                                       "efficiency",
                                       "wait_mean_s",
                                       "slowdown_mean",
                                       "moves",
                                       "freezes",
                                       "memory_asked_mean_mb",
                                       "paid",
                                       "earned"};

Result<std::string> history_csv(const Answer& a) { return csv_of(a, history_keys); }
Result<std::string> by_user(const Answer& a) { return report_table("User").text_of(a, report_row); }
Result<std::string> by_node(const Answer& a) { return report_table("Node").text_of(a, report_row); }
Result<std::string> by_day(const Answer& a) { return report_table("Day").text_of(a, report_row); }
Result<std::string> report_csv(const Answer& a) { return csv_of(a, report_keys); }

Status no_words(const char* verb, std::span<char*> words) {
    if (words.empty()) return {};
    return fail(std::string(verb) + ": unexpected argument '" + words[0] + "'");
}

Status take_since(MoneyOptions& money, CtlQuestion& question) {
    const std::string since = std::exchange(money.since, {});
    if (since.empty()) return {};
    TRY_ASSIGN(const int64_t seconds, parse_moment("--since", since));
    question.args.push_back("since=" + std::to_string(seconds));
    return {};
}

}  // namespace

Result<CtlQuestion> history_question(std::span<char*> words, const ReportOptions& o,
                                     const ColumnOptions& columns, MoneyOptions& money) {
    TRY(no_words("history", words));
    if (!o.by.empty()) return fail("history: --by is for report");
    CtlQuestion question{"list-jobs", {"state=finish"}, nullptr};
    TRY(show_jobs(columns, history_columns, question));
    if (o.csv) question.text = history_csv;
    if (o.csv && !columns.names.empty()) {
        TRY_ASSIGN(const JobColumns shown, job_columns(columns.names));
        question.text = [shown](const Answer& jobs) { return jobs_csv(jobs, shown); };
    }
    TRY(take_since(money, question));
    if (const std::string user = std::exchange(money.user, {}); !user.empty())
        question.args.push_back("user=" + user);
    if (const std::string node = std::exchange(money.provider, {}); !node.empty()) {
        if (!valid_node_name(node)) return fail("'" + node + "' is not a node name");
        question.args.push_back("node=" + node);
    }
    const std::string limit = std::exchange(money.limit, {});
    TRY_ASSIGN(const int64_t n, parse_whole(limit.empty() ? "100" : limit, 1, 1'000'000'000));
    question.args.push_back("limit=" + std::to_string(n));
    return question;
}

Result<CtlQuestion> report_question(std::span<char*> words, const ReportOptions& o,
                                    MoneyOptions& money) {
    TRY(no_words("report", words));
    const std::string by = o.by.empty() ? "user" : o.by;
    CtlQuestion question{"report", {"by=" + by}, nullptr};
    if (by == "user")
        question.text = by_user;
    else if (by == "node")
        question.text = by_node;
    else if (by == "day")
        question.text = by_day;
    else
        return fail("report: --by is one of user, node and day, not '" + by + "'");
    if (o.csv) question.text = report_csv;
    TRY(take_since(money, question));
    return question;
}

}  // namespace souk::tools
