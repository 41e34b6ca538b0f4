// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/srun/quote.hpp"

#include <algorithm>
#include <cmath>
#include <ctime>

#include "tools/common/table.hpp"
#include "tools/srun/summary.hpp"

namespace souk::tools {
namespace {

using Rows = std::vector<std::pair<std::string, std::string>>;

// "2h30m, at 23:40 (11-21)".
std::string until(const Json& q, const char* key) {
    const time_t at = ::time(nullptr) + static_cast<time_t>(q.value(key, 0.0));
    std::tm date{};
    char text[32] = "";
    if (::localtime_r(&at, &date)) std::strftime(text, sizeof text, "%F %H:%M", &date);
    return duration(q, key) + ", at " + text;
}

std::string chance(const Json& q, const char* key) {
    const double p = q.value(key, 0.0) * 100;
    if (p > 0 && p < 1) return "less than 1%";
    if (p < 100 && p > 99) return "more than 99%";
    return std::to_string(std::lround(p)) + "%";
}

void add_now(const Json& q, const SrunOptions& o, Rows& rows) {
    if (q.value("runs", false)) {
        const int displaced = q.value("displaced", 0);
        std::string now = "runs on " + field(q, "node") + " (speed " + field(q, "speed") + ") at " +
                          field(q, "price") + " per CPU-hour";
        if (displaced > 0)
            now +=
                ", in place of " + std::to_string(displaced) + (displaced == 1 ? " job" : " jobs");
        else if (q.value("others_first", false))
            now += ", when others have left";
        rows.emplace_back("Now", now);
    } else {
        rows.emplace_back("Now", "waits: " + field(q, "why"));
    }
    if (o.terms.pace) rows.emplace_back("Bid", field(q, "bid") + " now, to last until the finish");
    rows.emplace_back("At once for",
                      q.contains("winning_bid") ? "a bid of " + field(q, "winning_bid") : "no bid");
    if (q.contains("cost_now")) {
        rows.emplace_back("Cost", field(q, "cost_now") + ", at the price now");
        rows.emplace_back("Finish", until(q, "span_now_s") + ", if it stays there");
    }
    if (q.contains("budget_lasts_s"))
        rows.emplace_back("Budget lasts", duration(q, "budget_lasts_s") + ", at the price now");
}

void add_day(const Json& q, const SrunOptions& o, Rows& rows) {
    rows.emplace_back("Prices of", duration(q, "history_s"));
    if (q.value("history_s", 0) == 0) return;
    rows.emplace_back("  a place", chance(q, "place_share") + " of the time, at this bid");
    if (q.contains("frozen_chance"))
        rows.emplace_back(
            "  frozen",
            chance(q, "frozen_chance") + (o.runtime.ns > 0 ? " before it is done" : " in an hour"));
    if (!q.contains("expected_cost")) return;
    rows.emplace_back("  cost", field(q, "expected_cost") + ", expected");
    rows.emplace_back("  finish", until(q, "expected_span_s") + ", expected");
    if (q.contains("in_time_chance")) rows.emplace_back("  in time", chance(q, "in_time_chance"));
}

}  // namespace

Status quote(const SrunOptions& o, const std::string& socket) {
    const JobTerms& t = o.terms;
    std::vector<std::string> args = {
        "price=" + format_money(t.max_price),       "budget=" + format_money(t.budget),
        "memory=" + std::to_string(t.memory_mb),    "cpus=" + std::to_string(t.cpus),
        "finish_ns=" + std::to_string(t.finish.ns), "runtime_ns=" + std::to_string(o.runtime.ns)};
    if (t.pace) args.emplace_back("pace=yes");
    const auto here = [&] { return Result<std::string>(socket); };
    TRY_ASSIGN(const Answer answer,
               ask(here, "quote", args, std::min(o.patience, Nanos::from_s(5))));
    if (o.json)
        return o.json_file.empty() ? print(answer.front())
                                   : write_summary(o.json_file, answer.front());
    TRY_ASSIGN(const Json q, parse_object(answer));
    Rows rows;
    add_now(q, o, rows);
    add_day(q, o, rows);
    if (q.value("decided_by_program", false))
        rows.emplace_back("Note", "this market's solver is a program, which may decide otherwise");
    return print(lines(rows));
}

}  // namespace souk::tools
