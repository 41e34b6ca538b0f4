// SPDX-License-Identifier: GPL-2.0-or-later
// Writes the pages that tell what ran where and when, and what it cost: time, ledger, report.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <map>

#include "tools/common/job_rows.hpp"
#include "tools/web/pages.hpp"
#include "tools/web/pictures.hpp"
#include "tools/web/tables.hpp"

namespace souk::tools::web {
namespace {

std::string decimals(const Json& row, const char* key, double times) {
    const auto it = row.find(key);
    if (it == row.end() || !it->is_number()) return "-";
    char text[48];
    std::snprintf(text, sizeof text, "%.6f", it->get<double>() * times);
    return three_digits(text);
}
std::string hours_asked(const Json& row) { return decimals(row, "cpu_asked_s", 1.0 / 3'600); }
std::string hours_used(const Json& row) { return decimals(row, "cpu_used_s", 1.0 / 3'600); }
std::string slowdown(const Json& row) { return decimals(row, "slowdown_mean", 1); }

std::string percent_used(const Json& row) {
    const std::string text = decimals(row, "efficiency", 100);
    return text == "-" ? text : text.substr(0, text.find('.')) + "%";
}

// The day of Unix seconds, which are a text here.
std::string day_of(const Json& row) {
    std::string text = field(row, "day");
    const auto seconds = static_cast<time_t>(std::strtoll(text.c_str(), nullptr, 10));
    std::tm date{};
    char day[32];
    if (!::gmtime_r(&seconds, &date) || std::strftime(day, sizeof day, "%F", &date) == 0)
        return text;
    return day;
}

std::string bar_label(const Json& row, const std::string& id, double seconds) {
    const Json one = {{"s", seconds}};
    std::string text = id + ", " + field(row, "user") + ", " + duration(one, "s");
    if (const std::string price = money_figure(row, "price"); price != "-")
        text += ", at " + price + " per CPU-hour";
    return text;
}

void node_cell(Html& h, const Json& row) {
    if (const std::string name = field(row, "node"); name != "-") node_link(h, name);
}
void job_cell(Html& h, const Json& row) {
    if (const std::string id = field(row, "job"); id != "-") job_link(h, id);
}
void account_cell(Html& h, const Json& a) {
    const std::string kind = field(a, "account"), name = field(a, "name");
    h.text(kind).markup(" ");
    if (kind == "node")
        node_link(h, name);
    else if (name != "-")
        h.text(name);
}

constexpr Place report_ways[] = {{"user", "By user"}, {"node", "By node"}, {"day", "By day"}};
constexpr Place time_spans[] = {{"1h", "an hour"}, {"6h", "6 hours"}, {"24h", "a day"}};

}  // namespace

Html on_nodes(const Listed& nodes, const OnNodes& what) {
    Lanes lanes;
    lanes.from = what.from;
    lanes.to = what.to;
    std::map<std::string, size_t> lane_of;
    for (const Json& n : nodes.rows) {
        const std::string name = field(n, "node");
        lane_of.emplace(name, lanes.names.size());
        lanes.names.push_back(name);
    }
    std::map<std::string, double> paid_until;  // of a job, by its newest receipt
    const auto add = [&](const Json& row, const std::string& node, const std::string& id,
                         double from, double to) {
        const auto lane = lane_of.find(node);
        if (lane == lane_of.end() || to < what.from) return;
        Html address;
        address.markup("/job/").in_address(id);
        lanes.bars.push_back({lane->second, from, to, Bar::Kind::runs,
                              bar_label(row, id, to - from), address.str()});
    };
    for (const Json& r : what.receipts) {
        const std::string id = field(r, "job");
        if (id == "-" || !r.contains("to_unix_s")) continue;
        const double from = r.value("from_unix_s", 0.0), to = r.value("to_unix_s", 0.0);
        paid_until[id] = std::max(paid_until[id], to);
        add(r, field(r, "node"), id, from, to);
    }
    // A job that runs now has no receipt yet. It began when the last one ended, or has run all its
    // time.
    for (const Json& j : what.running) {
        const std::string id = field(j, "id");
        const auto until = paid_until.find(id);
        const double from =
            until != paid_until.end() ? until->second : what.to - j.value("runtime_s", 0.0);
        add(j, field(j, "where"), id, std::min(from, what.to), what.to);
    }
    Html h;
    h.markup(
        "<h1>Time</h1><p>What ran on each node. Each bar leads to its job. It is drawn from "
        "receipts, so it shows the jobs whose money souk-web may see.</p>");
    h.add(choice("Span", "/time?span=", time_spans, what.span));
    if (lanes.names.empty())
        return h.markup("<p class=\"none\">No node has joined, so nothing has run.</p>"), h;
    h.add(lanes_picture(lanes, "What ran on each node, and when"));
    return h.add(pager(nodes, "/time")), h;
}

Html ledger(const Json& accounts, const std::string& trouble, const Listed& receipts,
            const LedgerView& view) {
    static const std::vector<Column> account_columns = {
        {"Account", false, account_cell},
        number_column("Balance", "balance"),
        number_column("Charged since", "open"),
    };
    static const std::vector<Column> receipt_columns = {
        number_column("Receipt", "receipt"),
        {"Job", false, job_cell},
        plain_column("User", "user"),
        {"Node", false, node_cell},
        text_column("From", [](const Json& r) { return local_time(r, "from_unix_s"); }),
        text_column("To", [](const Json& r) { return local_time(r, "to_unix_s"); }),
        text_column(
            "Ran", [](const Json& r) { return three_digits(duration(r, "run_s")); }, true),
        money_column("Price", "price", an_hour),
        number_column("CPUs", "cpus"),
        number_column("Paid", "paid"),
        number_column("Earned", "earned"),
        plain_column("Because", "reason"),
    };
    Html h;
    h.markup("<h1>Ledger</h1><h2>Accounts</h2>");
    constexpr size_t accounts_max = 100;
    if (accounts.is_array() && accounts.size() > accounts_max)
        h.markup("<p class=\"none\">There are ")
            .text(std::to_string(accounts.size()))
            .markup(" accounts. Name a user or a node to see its own.</p>");
    else if (accounts.is_array())
        h.add(table("Accounts and what they hold", account_columns, accounts,
                    "No account yet. A user or node has one from the first receipt on."));
    else
        h.markup("<p class=\"none\">").text(trouble).markup("</p>");
    h.markup("<h2>Receipts</h2><form method=\"get\" action=\"/ledger\" role=\"search\">");
    text_input(h, "job", "Job", view.job);
    text_input(h, "user", "User", view.user);
    text_input(h, "node", "Node", view.node);
    h.markup("<button>Show</button></form>");
    h.markup("<p><a href=\"/statement");
    if (const std::string& of = view.user.empty() ? view.node : view.user; !of.empty())
        h.markup("?of=").in_address(of);
    h.markup("\">Statement of this account</a></p>");
    h.add(table("Receipts, the newest first", receipt_columns, receipts.rows,
                "No receipt here. A job has one when it leaves a place, or ends."));
    return h.add(pager(receipts, "/ledger")), h;
}

Html statement(const Listed& entries, const StatementView& view) {
    static const std::vector<Column> columns = {
        number_column("Receipt", "receipt"),
        text_column("When", [](const Json& e) { return local_time(e, "at_unix_s"); }),
        plain_column("What", "kind"),
        plain_column("With", "with"),
        {"Job", false, job_cell},
        number_column("Amount", "amount"),
        number_column("Balance", "balance"),
        plain_column("Note", "note"),
    };
    Html h;
    h.markup("<h1>Statement</h1><form method=\"get\" action=\"/statement\" role=\"search\">");
    text_input(h, "of", "User or node", view.of);
    h.markup("<button>Show</button></form>");
    h.add(table("What came and went, the newest first", columns, entries.rows,
                "No entry yet: nothing has been paid, earned or given."));
    return h.add(pager(entries, "/statement")), h;
}

Html report(const Json& rows, const std::string& by, const std::string& span) {
    std::vector<Column> columns;
    if (by == "user")
        columns.push_back(plain_column("User", "user"));
    else if (by == "day")
        columns.push_back(text_column("Day (UTC)", day_of));
    else
        columns.push_back({"Node", false, node_cell});
    for (Column& c : std::vector<Column>{
             number_column("Jobs", "jobs"), number_column("Failed", "failed"),
             text_column("CPU-hours", hours_asked, true), text_column("Used", hours_used, true),
             text_column("Efficiency", percent_used, true),
             text_column(
                 "Mean wait",
                 [](const Json& r) { return three_digits(duration(r, "wait_mean_s")); }, true),
             text_column("Slowdown", slowdown, true), number_column("Moves", "moves"),
             number_column("Freezes", "freezes"), money_column("Paid", "paid"),
             money_column("Earned", "earned")})
        columns.push_back(std::move(c));
    Html h;
    h.markup("<h1>Report</h1>").add(choice("Summed up", "/report?by=", report_ways, by));
    h.markup("<p>Of the last ").text(span);
    h.markup(", by receipts and by the day on which jobs ended.</p>");
    return h.add(table("Use, waits and money", columns, rows, "Nothing has run in this time.")), h;
}

}  // namespace souk::tools::web
