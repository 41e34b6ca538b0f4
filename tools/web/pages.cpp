// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/web/pages.hpp"

#include "tools/common/job_rows.hpp"
#include "tools/common/job_state.hpp"
#include "tools/web/pictures.hpp"
#include "tools/web/tables.hpp"

namespace souk::tools::web {
namespace {

constexpr Place pages_listed[] = {{"/", "Board"},          {"/nodes", "Nodes"},   {"/jobs", "Jobs"},
                                  {"/history", "History"}, {"/prices", "Prices"}, {"/time", "Time"},
                                  {"/ledger", "Ledger"},   {"/report", "Report"}};

constexpr Markup no_live_job =
    "No job is live. On a node of this market <code>srun -p 40 PROGRAM</code> runs a program that "
    "is worth 40 per CPU-hour; <code>man souk-srun</code> has the rest.";
constexpr Markup no_finished_job =
    "No job has ended yet. Those that run are at <a href=\"/jobs\">Jobs</a>.";
constexpr Markup no_node =
    "No node has joined. <code>souk setup node</code> on a machine lends it to this market, and "
    "<code>pvdctl market on</code> offers it again.";

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
        if (row->contains("least")) return money_figure(*row, "least");
    return "-";
}

// Up to the newest row: what is older than the market is left empty.
Html price_line(const Json& rows, const std::string& span, double span_s) {
    const std::vector<Stretch> stretches = least_prices(rows);
    const double to = stretches.empty() ? span_s : stretches.back().to;
    return line_picture(stretches, to - span_s, to,
                        "What one more job of one CPU would have cost per CPU-hour in the last " +
                            span + "; now " + price_now(rows));
}

void tile(Html& h, Markup name, const std::string& value, Markup path, Markup unit = "") {
    h.markup("<div><dt><a href=\"").markup(path).markup("\">").markup(name);
    h.markup("</a></dt><dd>").text(value);
    if (!unit.text.empty() && value != "-") h.markup(" <small>").markup(unit).markup("</small>");
    h.markup("</dd></div>");
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
                     const Html& main, const Visitor& visitor, bool still,
                     const std::string& zone) {
    Html h;
    h.markup("<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>").text(title);
    h.markup(" - Souk on ").text(market.empty() ? "this host" : market).markup("</title>");
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
        "<a class=\"skip\" href=\"#main\">To the content</a><header><strong>Souk");
    if (!market.empty()) h.markup(" on ").text(market);
    h.markup("</strong><nav aria-label=\"Souk\"><ul>");
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
    h.add(main).markup(
        "</main><footer>Bids and prices are per CPU-hour, amounts in the market's own unit of "
        "money.");
    if (!zone.empty()) h.markup(" Times are in ").text(zone).markup(".");
    h.markup("</footer></body></html>\n");
    return h.str();
}

Html board(const Json& status, const Listed& nodes, const Listed& jobs, const Json& prices,
           const Json& peers, const Fold& fold) {
    const Json counts = status.value("jobs", Json::object());
    Html h;
    h.markup("<h1>The market on ")
        .text(field(status, "hostname"))
        .markup("</h1><p class=\"lead\">");
    h.markup(
        "Souk runs jobs on machines that their owners lend. The highest bids get the fastest "
        "machines, and a job moves or is frozen while it runs. This market decides by ");
    h.text(field(status, "solver")).markup(".</p>");
    for (const Json& warning : status.value("warnings", Json::array()))
        if (warning.is_string())
            h.markup("<p class=\"warning\">").text(warning.get<std::string>()).markup("</p>");
    h.markup("<dl class=\"tiles\">");
    tile(h, "Jobs that run", field(counts, "run"), "/jobs?state=run");
    tile(h, "Jobs that wait", field(counts, "wait"), "/jobs?state=wait");
    tile(h, "Frozen jobs", field(counts, "suspend"), "/jobs?state=frozen");
    tile(h, "Finished jobs", field(counts, "finish"), "/history");
    tile(h, "Nodes that offer", field(status, "providers"), "/nodes");
    tile(h, "A place costs", price_now(prices), "/prices?span=6h", an_hour);
    h.markup("</dl>");
    heading(h, "Jobs").add(
        table("Live jobs, those that run first", job_columns(fold), jobs.rows, no_live_job));
    if (!jobs.next.empty()) h.markup("<p><a href=\"/jobs\">All live jobs</a></p>");
    heading(h, "Nodes").add(table("Nodes by name", node_columns(), nodes.rows, no_node));
    if (!nodes.next.empty()) h.markup("<p><a href=\"/nodes\">All nodes</a></p>");
    if (!peers.empty())
        heading(h, "Sites").add(table("Other sites by name", site_columns(), peers, "None."));
    heading(h, "What a place cost").add(price_line(prices, "6 hours", 6 * 3'600.0));
    return h;
}

Html nodes(const Listed& list, const NodesView& view) {
    Html h;
    h.markup("<h1>Nodes</h1><form method=\"get\" action=\"/nodes\" role=\"search\">");
    text_input(h, "match", "Name holds", view.match);
    h.markup("<button>Show</button></form>");
    h.add(table("Nodes by name", node_columns(), list.rows,
                view.match.empty() ? no_node
                                   : Markup("No node's name holds that. "
                                            "<a href=\"/nodes\">All nodes</a>")));
    return h.add(pager(list, "/nodes")), h;
}

Html jobs(const Listed& list, const JobsView& view, const Fold& fold) {
    const bool finished = view.state == "finish";
    Html h;
    if (!view.group.empty())
        h.markup("<h1>Jobs of ").text(view.group).markup("</h1>");
    else
        h.markup(finished ? Markup("<h1>Finished jobs</h1>") : Markup("<h1>Live jobs</h1>"));
    h.markup("<form method=\"get\" action=\"")
        .markup(finished ? Markup("/history") : Markup("/jobs"));
    h.markup("\" role=\"search\">");
    if (!finished) {
        h.markup("<label>State <select name=\"state\">");
        constexpr Place states[] = {
            {"live", "all"}, {"run", "run"}, {"wait", "wait"}, {"frozen", "frozen"}};
        for (const Place& s : states) {
            h.markup("<option value=\"").markup(s.path).markup("\"");
            if (state_word(view.state) == s.path.text) h.markup(" selected");
            h.markup(">").markup(s.name).markup("</option>");
        }
        h.markup("</select></label> ");
    }
    text_input(h, "user", "User", view.user);
    text_input(h, "node", "Ran on", view.node);
    h.markup("<button>Show</button></form>");
    const bool all = view.user.empty() && view.node.empty() && view.group.empty();
    if (finished)
        h.add(table("Finished jobs, the newest first", finished_columns(), list.rows,
                    all ? no_finished_job
                        : Markup("No such job. <a href=\"/history\">All finished jobs</a>")));
    else
        h.add(table("Live jobs, those that run first", job_columns(fold), list.rows,
                    all && view.state == "live"
                        ? no_live_job
                        : Markup("No live job is so. <a href=\"/jobs\">All live jobs</a>")));
    return h.add(pager(list, finished ? Markup("/history") : Markup("/jobs"))), h;
}

Html prices(const Json& rows, const std::string& span, double span_s) {
    static const std::vector<Column> columns = {
        text_column("From", [](const Json& r) { return local_time(r, "from_unix_s"); }),
        money_column("Mean", "least", an_hour),
        money_column("Low", "low", an_hour),
        money_column("High", "high", an_hour),
        text_column(
            "No place for", [](const Json& r) { return three_digits(duration(r, "closed_s")); },
            true),
    };
    Html h;
    h.markup("<h1>Prices</h1><p>What one more job of one CPU would have cost per CPU-hour.</p>");
    constexpr Place spans[] = {
        {"6h", "6 hours"}, {"24h", "a day"}, {"7d", "a week"}, {"30d", "30 days"}};
    h.add(choice("Span", "/prices?span=", spans, span)).add(price_line(rows, span, span_s));
    Json newest = Json::array();
    for (auto row = rows.rbegin(); row != rows.rend(); ++row) newest.push_back(*row);
    return h.add(table("Prices, the newest first", columns, newest,
                       "No price is known yet. A market notes one for each minute, from its first "
                       "node on.")),
           h;
}

Html trouble(const std::string& title, const std::string& what) {
    Html h;
    h.markup("<h1>").text(title).markup("</h1><p class=\"warning\">").text(what);
    return h.markup("</p><p><a href=\"/\">To the board</a></p>"), h;
}

}  // namespace souk::tools::web
