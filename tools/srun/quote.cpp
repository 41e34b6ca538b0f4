// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/srun/quote.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
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

// True: more than one job or component is asked about.
bool several(const SrunOptions& o) { return o.jobs > 1 || o.components > 0; }
std::string parts(const SrunOptions& o, int64_t n) {
    const std::string what = o.components > 0 ? " component" : " job";
    return std::to_string(n) + what + (n == 1 ? "" : "s");
}

std::string jobs(int64_t n) { return std::to_string(n) + (n == 1 ? " job" : " jobs"); }

// "n2 (speed 80) at 12.5 per CPU-hour".
std::string place(const Json& p) {
    return field(p, "node") + " (speed " + field(p, "speed") + ") at " + field(p, "price") +
           " per CPU-hour";
}

std::string in_place_of(const Json& q) {
    const int displaced = q.value("displaced", 0);
    if (displaced > 0) return ", in place of " + jobs(displaced);
    return q.value("others_first", false) ? ", when others have left" : "";
}

void add_now(const Json& q, const SrunOptions& o, Rows& rows) {
    if (several(o)) {
        const int running = q.value("running", 0), all = std::max(o.jobs, o.components);
        std::string now = std::to_string(running) + " of " + parts(o, all) +
                          (running == 1 ? " runs" : " run") + in_place_of(q);
        if (running < all && q.contains("why"))
            now += (o.components > 0 ? "; it waits: " : "; another waits: ") + field(q, "why");
        rows.emplace_back("Now", now);
        for (const Json& p : q.value("places", Json::array()))
            rows.emplace_back("  " + parts(o, p.value("jobs", 0)), place(p));
        if (running > 0) rows.emplace_back("All an hour", rounded_money(q, "rate"));
    } else if (q.value("runs", false)) {
        rows.emplace_back("Now", "runs on " + place(q) + in_place_of(q));
    } else {
        rows.emplace_back("Now", "waits: " + field(q, "why"));
    }
    if (o.terms.pace)
        rows.emplace_back("Bid", field(q, "bid") + " now, to last until the finish");
    else if (!o.terms.strategy.empty())
        rows.emplace_back("Bid", field(q, "bid") + " now, by its strategy: " + o.terms.strategy);
    rows.emplace_back(several(o) ? "All for" : "At once for",
                      q.contains("winning_bid") ? "a bid of " + field(q, "winning_bid") : "no bid");
    if (q.contains("cost_now")) {
        rows.emplace_back("Cost", rounded_money(q, "cost_now") + ", at the price now");
        rows.emplace_back("Finish", until(q, "span_now_s") + (several(o) ? ", if they stay there"
                                                                         : ", if it stays there"));
    }
    if (q.contains("budget_lasts_s"))
        rows.emplace_back("Budget lasts", duration(q, "budget_lasts_s") + ", at the price now");
}

void add_day(const Json& q, const SrunOptions& o, Rows& rows) {
    rows.emplace_back("Prices of",
                      duration(q, "history_s") + (several(o) ? ", for one of them" : ""));
    if (q.value("history_s", 0) == 0) return;
    rows.emplace_back("  a place", chance(q, "place_share") + " of the time, at this bid");
    if (q.contains("frozen_chance"))
        rows.emplace_back("  frozen",
                          chance(q, "frozen_chance") +
                              (o.terms.runtime.ns > 0 ? " before it is done" : " in an hour"));
    if (!q.contains("expected_cost")) return;
    rows.emplace_back("  cost", rounded_money(q, "expected_cost") + ", expected");
    rows.emplace_back("  finish", until(q, "expected_span_s") + ", expected");
    if (q.contains("in_time_chance")) rows.emplace_back("  in time", chance(q, "in_time_chance"));
}

// Compares the strategies: what each bids now, and what the prices of the last day say of that bid.
Status compare(const Json& q) {
    if (!q.contains("strategies")) return {};
    Table table({{"STRATEGY"},
                 {"BID", true},
                 {"PLACE", true},
                 {"COST", true},
                 {"FINISH", true},
                 {"IN TIME", true}});
    for (const Json& s : q["strategies"]) {
        const auto if_known = [&](const char* key, const std::string& text) {
            return s.contains(key) ? text : std::string("-");
        };
        table.add({field(s, "strategy"), field(s, "bid"),
                   if_known("place_share", chance(s, "place_share")),
                   if_known("expected_cost", rounded_money(s, "expected_cost")),
                   if_known("expected_span_s", duration(s, "expected_span_s")),
                   if_known("in_time_chance", chance(s, "in_time_chance"))});
    }
    return print("\n" + table.text());
}

// "a place on n1", or of several components "3 places, on n1 (2) and n2".
std::string offered_places(const Json& p) {
    int all = 0;
    std::string list;
    const Json nodes = p.value("nodes", Json::object());
    for (auto it = nodes.begin(); it != nodes.end(); ++it) {
        const int here = it.value().get<int>();
        all += here;
        list += (list.empty() ? "" : ", ") + it.key();
        if (here > 1) list += " (" + std::to_string(here) + ")";
    }
    if (all < 2) return "a place on " + field(p, "node");
    return std::to_string(all) + " places, on " + list + ",";
}

// The words of the market of a promise: one line.
std::string offered_words(const Json& p) {
    if (p.value("can", false))
        return "by " + local_time(p, "deadline_unix_s") + ": " + offered_places(p) + " from " +
               local_time(p, "latest_start_unix_s") + " on at the latest, at " + field(p, "price") +
               " per CPU-hour, at most " + rounded_money(p, "cost_most") +
               (p.value("learned", false) ? "; how long it runs is learned" : "");
    std::string text = field(p, "why");
    if (p.contains("price_for_it")) text += "; it can for a price of " + field(p, "price_for_it");
    if (p.contains("earliest_unix_s") && p.value("code", "") != "promise_late")
        text += "; at this price by " + local_time(p, "earliest_unix_s") + " at the earliest";
    return text;
}

// Says what each component needs, as describe_components() does when they are submitted.
std::string components_asked(const SrunOptions& o) {
    std::string all, last;
    int alike = 0;
    const auto add = [&] {
        if (alike > 0) all += (all.empty() ? "" : ",") + std::to_string(alike) + "*" + last;
    };
    for (int i = 0; i < o.components; ++i) {
        const auto at = static_cast<size_t>(i);
        const ComponentPlan plan = at < o.plan.size() ? o.plan[at] : ComponentPlan();
        const int cpus = plan.cpus > 0 ? plan.cpus : o.terms.cpus;
        const int64_t mb = plan.memory_mb > 0 ? plan.memory_mb : o.terms.memory_mb;
        const bool is_optional = plan.role == ComponentClass::optional;
        const std::string one = std::to_string(cpus) + "x" + std::to_string(mb) +
                                (is_optional ? "?" : "") +
                                (plan.node.empty() ? "" : "@" + plan.node);
        if (one != last) add(), alike = 0;
        last = one;
        ++alike;
    }
    add();
    return all;
}

// The limit of the job, or the longest of its components, where each has one.
Nanos longest_limit(const SrunOptions& o) {
    Nanos most = o.components > 0 && !o.plan.empty() ? Nanos{} : o.terms.limits->run;
    for (const ComponentPlan& one : o.plan) {
        const Nanos limit = one.time.ns > 0 ? one.time : o.terms.limits->run;
        if (limit.ns == 0) return limit;
        most = std::max(most, limit);
    }
    return most;
}

void ask_of_components(const SrunOptions& o, std::vector<std::string>& args) {
    args.push_back("components=" + components_asked(o));
    if (o.spread > 0) args.push_back("spread=" + std::to_string(o.spread));
    if (o.pack) args.emplace_back("pack=yes");
    if (!o.near) return;
    args.emplace_back("near=yes");
    args.push_back("near_trip_us=" + std::to_string(o.near_trip_us));
    args.push_back("near_mbit=" + std::to_string(o.near_mbit));
}

std::vector<std::string> questions(const SrunOptions& o) {
    const JobTerms& t = o.terms;
    std::vector<std::string> args = {
        "price=" + format_money(t.max_price),       "budget=" + format_money(t.budget),
        "memory=" + std::to_string(t.memory_mb),    "cpus=" + std::to_string(t.cpus),
        "finish_ns=" + std::to_string(t.finish.ns), "runtime_ns=" + std::to_string(t.runtime.ns)};
    if (t.pace) args.emplace_back("pace=yes");
    if (!t.strategy.empty()) {
        args.push_back("strategy=" + t.strategy);
        args.emplace_back("compare=yes");
    }
    if (!t.needs->empty()) args.push_back("needs=" + *t.needs);
    if (!t.resources.empty()) args.push_back("resources=" + *t.resources);
    if (o.jobs > 1) args.push_back("jobs=" + std::to_string(o.jobs));
    if (o.components > 0) ask_of_components(o, args);
    if (t.booking->promise) {
        args.emplace_back("promise=yes");
        args.push_back("limit_ns=" + std::to_string(longest_limit(o).ns));
        args.push_back("limit_speed=" + std::to_string(t.limits->at_speed));
        args.push_back("command=" + std::string(o.program.empty() ? "" : o.program[0]));
    }
    return args;
}

}  // namespace

Status ask_for_promise(const SrunOptions& o, const std::string& socket) {
    const auto here = [&] { return Result<std::string>(socket); };
    TRY_ASSIGN(const Answer answer,
               ask(here, "quote", questions(o), std::min(o.patience, Nanos::from_s(5))));
    TRY_ASSIGN(const Json q, parse_object(answer));
    const Json p = q.value("promise", Json::object());
    if (p.empty()) return fail("the market is of a version that promises nothing");
    if (!p.value("can", false)) return fail(offered_words(p));
    std::fprintf(stderr, "srun: the market can promise it %s\n", offered_words(p).c_str());
    return {};
}

Status quote(const SrunOptions& o, const std::string& socket) {
    const std::vector<std::string> args = questions(o);
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
    if (q.contains("promise")) rows.emplace_back("Promise", offered_words(q["promise"]));
    if (q.value("decided_by_program", false))
        rows.emplace_back("Note", "this market's solver is a program, which may decide otherwise");
    TRY(print(lines(rows)));
    return compare(q);
}

}  // namespace souk::tools
