// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/web/pages.hpp"

#include "tools/web/pictures.hpp"
#include "tools/web/tables.hpp"

namespace souk::tools::web {
namespace {

constexpr Place pages_listed[] = {{"/", "Board"},          {"/nodes", "Nodes"},   {"/jobs", "Jobs"},
                                  {"/history", "History"}, {"/prices", "Prices"}, {"/time", "Time"},
                                  {"/ledger", "Ledger"},   {"/report", "Report"}};

// Returns the least prices over time; below 0 while no place was to be had.
std::vector<Stretch> least_prices(const Json& rows) {
    std::vector<Stretch> stretches;
    for (const Json& row : rows) {
        const auto it = row.find("least");
        const double from = row.value("from_unix_s", 0.0);
        stretches.push_back({from, from + row.value("span_s", 0.0),
                             it != row.end() && it->is_number() ? it->get<double>() : -1.0});
    }
    return stretches;
}

// The newest row in which a place could be had.
std::string price_now(const Json& rows) {
    for (auto row = rows.rbegin(); row != rows.rend(); ++row)
        if (row->contains("least")) return field(*row, "least");
    return "-";
}

// Up to the newest row: what is older than the market is left empty.
Html price_line(const Json& rows, const std::string& span, double span_s) {
    const std::vector<Stretch> stretches = least_prices(rows);
    const double to = stretches.empty() ? span_s : stretches.back().to;
    return line_picture(stretches, to - span_s, to,
                        "What one more job of one CPU would have cost in the last " + span +
                            "; now " + or_none(price_now(rows)));
}

void tile(Html& h, Markup name, const std::string& value) {
    h.markup("<div><dt>").markup(name).markup("</dt><dd>").text(value).markup("</dd></div>");
}

// Names the visitor who has logged in, with the way out; else offers the way in.
Html who_is_it(const Visitor& visitor) {
    Html h;
    if (!visitor.may_log_in) return h;
    if (visitor.name.empty()) return h.markup("<a href=\"/login\">Log in</a>"), h;
    h.markup("<form method=\"post\" action=\"/logout\" class=\"who\">");
    h.markup("<input type=\"hidden\" name=\"form\" value=\"").text(visitor.form_key);
    h.markup("\"><span>").text(visitor.name).markup(visitor.operates ? Markup(", operator") : "");
    return h.markup("</span> <button>Log out</button></form>"), h;
}

Html& heading(Html& h, Markup text) { return h.markup("<h2>").markup(text).markup("</h2>"); }

}  // namespace

std::string document(const std::string& title, const std::string& market, const std::string& place,
                     const Html& main, const Visitor& visitor, bool still) {
    Html h;
    h.markup("<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>").text(title);
    h.markup(" - ").text(market.empty() ? "Souk" : market).markup("</title>");
    h.markup(
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
        "<meta name=\"color-scheme\" content=\"light dark\">"
        "<link rel=\"icon\" href=\"/icon.svg\"><link rel=\"stylesheet\" href=\"/style.css\">");
    if (!still)
        h.markup(
            "<script src=\"/page.js\" defer></script>"
            "<noscript><meta http-equiv=\"refresh\" content=\"10\"></noscript>");
    h.markup(
        "</head><body>"
        "<a class=\"skip\" href=\"#main\">To the content</a><header><strong>");
    h.text(market.empty() ? "Souk" : market).markup("</strong><nav aria-label=\"Souk\"><ul>");
    for (const Place& p : pages_listed) {
        h.markup("<li><a href=\"").markup(p.path).markup("\"");
        if (p.path.text == place) h.markup(" aria-current=\"page\"");
        h.markup(">").markup(p.name).markup("</a></li>");
    }
    h.markup("</ul></nav>");
    h.add(who_is_it(visitor))
        .markup(
            "<span id=\"live\" role=\"status\"></span></header>"
            "<main id=\"main\" tabindex=\"-1\">");
    h.add(main).markup("</main></body></html>\n");
    return h.str();
}

Html board(const Json& status, const Listed& nodes, const Listed& jobs, const Json& prices) {
    const Json counts = status.value("jobs", Json::object());
    Html h;
    h.markup("<h1>").text(field(status, "hostname")).markup("</h1>");
    for (const Json& warning : status.value("warnings", Json::array()))
        if (warning.is_string())
            h.markup("<p class=\"warning\">").text(warning.get<std::string>()).markup("</p>");
    h.markup("<dl class=\"tiles\">");
    tile(h, "Nodes that offer", or_none(field(status, "providers")));
    tile(h, "Jobs that run", or_none(field(counts, "run")));
    tile(h, "Jobs that wait", or_none(field(counts, "wait")));
    tile(h, "Frozen jobs", or_none(field(counts, "suspend")));
    tile(h, "Finished jobs", or_none(field(counts, "finish")));
    tile(h, "A place costs", or_none(price_now(prices)));
    tile(h, "Algorithm", field(status, "solver"));
    h.markup("</dl>").add(price_line(prices, "6 hours", 6 * 3'600.0));
    heading(h, "Jobs").add(
        table("Live jobs, the newest first", job_columns(), jobs.rows, "No job."));
    if (!jobs.next.empty()) h.markup("<p><a href=\"/jobs\">All live jobs</a></p>");
    heading(h, "Nodes").add(table("Nodes by name", node_columns(), nodes.rows, "No node."));
    if (!nodes.next.empty()) h.markup("<p><a href=\"/nodes\">All nodes</a></p>");
    return h;
}

Html nodes(const Listed& list, const NodesView& view) {
    Html h;
    h.markup("<h1>Nodes</h1><form method=\"get\" action=\"/nodes\" role=\"search\">");
    text_input(h, "match", "Name holds", view.match);
    h.markup("<button>Show</button></form>");
    h.add(table("Nodes by name", node_columns(), list.rows, "No node here."));
    return h.add(pager(list, "/nodes")), h;
}

Html jobs(const Listed& list, const JobsView& view) {
    const bool finished = view.state == "finish";
    Html h;
    h.markup(finished ? Markup("<h1>Finished jobs</h1>") : Markup("<h1>Live jobs</h1>"));
    h.markup("<form method=\"get\" action=\"")
        .markup(finished ? Markup("/history") : Markup("/jobs"));
    h.markup("\" role=\"search\">");
    if (!finished) {
        h.markup("<label>State <select name=\"state\">");
        constexpr Place states[] = {
            {"live", "all"}, {"run", "run"}, {"wait", "wait"}, {"suspend", "frozen"}};
        for (const Place& s : states) {
            h.markup("<option value=\"").markup(s.path).markup("\"");
            if (view.state == s.path.text) h.markup(" selected");
            h.markup(">").markup(s.name).markup("</option>");
        }
        h.markup("</select></label> ");
    }
    text_input(h, "user", "User", view.user);
    text_input(h, "node", "Ran on", view.node);
    h.markup("<button>Show</button></form>");
    h.add(table("Jobs, the newest first", finished ? finished_columns() : job_columns(), list.rows,
                "No job here."));
    return h.add(pager(list, finished ? Markup("/history") : Markup("/jobs"))), h;
}

Html prices(const Json& rows, const std::string& span, double span_s) {
    static const std::vector<Column> columns = {
        text_column("From", [](const Json& r) { return local_time(r, "from_unix_s"); }),
        number_column("Mean", "least"),
        number_column("Low", "low"),
        number_column("High", "high"),
        text_column(
            "No place", [](const Json& r) { return duration(r, "closed_s"); }, true),
    };
    Html h;
    h.markup("<h1>Prices</h1><p>What one more job of one CPU would have cost per CPU-hour.</p>");
    constexpr Place spans[] = {
        {"6h", "6 hours"}, {"24h", "a day"}, {"7d", "a week"}, {"30d", "30 days"}};
    h.add(choice("Span", "/prices?span=", spans, span)).add(price_line(rows, span, span_s));
    Json newest = Json::array();
    for (auto row = rows.rbegin(); row != rows.rend(); ++row) newest.push_back(*row);
    return h.add(table("Prices, the newest first", columns, newest, "No price is known yet.")), h;
}

Html trouble(const std::string& title, const std::string& what) {
    Html h;
    h.markup("<h1>").text(title).markup("</h1><p class=\"warning\">").text(what);
    return h.markup("</p><p><a href=\"/\">To the board</a></p>"), h;
}

}  // namespace souk::tools::web
