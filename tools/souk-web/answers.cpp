// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/souk-web/answers.hpp"

#include <algorithm>
#include <ctime>

#include "kernel/base/ids.hpp"
#include "tools/common/job_rows.hpp"
#include "tools/common/job_state.hpp"
#include "tools/web/actions.hpp"

namespace souk::tools::web {
namespace {

constexpr int page_rows = 50, board_rows = 15;
constexpr size_t text_max = 64;
// A part may be empty though the list goes on: so many are asked for before a page says so.
constexpr int parts_max = 16;

std::string param(const Query& query, const char* name) {
    const auto it = query.find(name);
    return it == query.end() ? "" : it->second;
}

PageAnswer wrong(const std::string& what) {
    return {400, "Not understood", trouble("Not understood", what)};
}
PageAnswer absent(const std::string& what) {
    return {404, "Not found", trouble("Not found", what)};
}
// Says with the market's own words, or with the reason, that it does not answer.
PageAnswer away(const Error& error) {
    const std::string title = "The market does not answer";
    return {503, title, trouble(title, error.message + "; this page tries again")};
}

// Tells whether the text may stand in a question: it has no control character, and is not too long.
bool fit(const std::string& text) {
    return text.size() <= text_max && std::none_of(text.begin(), text.end(), [](char c) {
               return static_cast<unsigned char>(c) < 0x20;
           });
}

Result<Listed> listed(Asker& asker, const std::string& verb, std::vector<std::string> args,
                      int rows, const std::string& after = {}) {
    args.push_back("page=" + std::to_string(rows));
    Listed list;
    list.first = after.empty();
    list.next = after;
    for (int i = 0; i < parts_max; ++i) {
        TRY_ASSIGN(const Feed::Part part, asker.part(verb, args, list.next));
        list.next = part.next;
        if (part.rows.is_array())
            list.rows.insert(list.rows.end(), part.rows.begin(), part.rows.end());
        if (list.next.empty() || !list.rows.empty()) break;
    }
    return list;
}

// The live jobs with arrays and gangs as one row each, and below the group that is open its jobs.
// A market of an older version does not fold: then they come as they are.
Result<Listed> folded(Asker& asker, std::vector<std::string> args, int rows,
                      const std::string& open, const std::string& after = {}) {
    auto plain = args;
    args.emplace_back("fold=yes");
    auto list = listed(asker, "list-jobs", args, rows, after);
    if (!list && list.error().message.starts_with("list-jobs: 'fold=yes' is none of"))
        return listed(asker, "list-jobs", plain, rows, after);
    if (!list || open.empty()) return list;
    Json all = Json::array();
    for (Json& row : list->rows) {
        const bool opens = row_id(row) == open && is_group(row);
        all.push_back(std::move(row));
        if (!opens) continue;
        auto with = plain;
        with.push_back("group=" + open);
        TRY_ASSIGN(const Listed jobs, listed(asker, "list-jobs", with, page_rows));
        // They come the newest first; in a group the first one stands first.
        for (auto job = jobs.rows.rbegin(); job != jobs.rows.rend(); ++job) {
            all.push_back(*job);
            all.back()["part_of"] = open;
        }
    }
    list->rows = std::move(all);
    return list;
}

// Finished jobs with arrays and gangs as one row each, as far as they stand near each other: of a
// long array ten parts of the list are read, so that the page shows what else has ended.
Result<Listed> folded_finished(Asker& asker, const std::vector<std::string>& args, int rows,
                               const std::string& after) {
    constexpr int history_parts = 10;
    TRY_ASSIGN(Listed all, listed(asker, "list-jobs", args, rows, after));
    Json shown = folded_history(all.rows);
    for (int i = 1; i < history_parts && !all.next.empty() && shown.size() < size_t(rows); ++i) {
        TRY_ASSIGN(const Listed more, listed(asker, "list-jobs", args, rows, all.next));
        all.rows.insert(all.rows.end(), more.rows.begin(), more.rows.end());
        all.next = more.next;
        shown = folded_history(all.rows);
    }
    all.rows = std::move(shown);
    return all;
}

Result<std::string> open_group(const Query& query) {
    const std::string open = param(query, "open");
    if (open.empty()) return open;
    TRY_ASSIGN(const JobId id, parse_job_id(open));
    return id.text();
}

// The query of the next part's page.
void lead_on(Listed& list, const Query& query, std::initializer_list<const char*> kept) {
    if (list.next.empty()) return;
    Html h;
    h.markup("?after=").in_address(list.next);
    for (const char* name : kept)
        if (const std::string value = param(query, name); !value.empty())
            h.markup("&").text(name).markup("=").in_address(value);
    list.next = h.str();
}

Result<Json> price_rows(Asker& asker, int64_t span_s, int64_t row_s) {
    const int64_t since = (::time(nullptr) - span_s) / row_s * row_s;
    return asker.ask("prices",
                     {std::to_string(std::max<int64_t>(0, since)), std::to_string(row_s)});
}

PageAnswer show_board(Asker& asker, const Query& query) {
    const auto open = open_group(query);
    if (!open) return wrong(open.error().message);
    const auto status = asker.ask("status", {});
    if (!status) return away(status.error());
    const auto nodes = listed(asker, "list-providers", {}, board_rows);
    if (!nodes) return away(nodes.error());
    const auto jobs = folded(asker, {"state=live"}, board_rows, *open);
    if (!jobs) return away(jobs.error());
    const auto prices = price_rows(asker, 6 * 3'600, 60);
    if (!prices) return away(prices.error());
    // A market of a version before knows no peers.
    const auto sites = asker.ask("peer-list", {});
    const Json peers =
        sites && sites->is_object() ? sites->value("peers", Json::array()) : Json::array();
    return {200, "Board", board(*status, *nodes, *jobs, *prices, peers, {*open, "/", "?open="})};
}

PageAnswer show_nodes(Asker& asker, const Query& query) {
    const NodesView view{param(query, "match")};
    const std::string after = param(query, "after");
    if (!fit(view.match) || !fit(after)) return wrong("a node's name has at most 32 characters");
    std::vector<std::string> args;
    if (!view.match.empty()) args.push_back("match=" + view.match);
    auto list = listed(asker, "list-providers", args, page_rows, after);
    if (!list) return away(list.error());
    lead_on(*list, query, {"match"});
    return {200, "Nodes", nodes(*list, view)};
}

// Leads from this page to itself, with another group open.
Fold fold_of(const Query& query, const std::string& open) {
    Html h;
    for (const char* name : {"state", "user", "node", "after"})
        if (const std::string value = param(query, name); !value.empty())
            h.markup(h.empty() ? Markup("?") : Markup("&"))
                .text(name)
                .markup("=")
                .in_address(value);
    return {open, "/jobs" + h.str(), h.empty() ? "?open=" : "&open="};
}

PageAnswer show_some_jobs(Asker& asker, const Query& query, JobsView view) {
    view.user = param(query, "user");
    view.node = param(query, "node");
    view.group = param(query, "group");
    view.state = status_of_word(view.state);
    const std::string after = param(query, "after");
    constexpr std::string_view states[] = {"live", "run", "wait", "suspend", "finish"};
    if (std::find(std::begin(states), std::end(states), view.state) == std::end(states))
        return wrong("a state is one of live, run, wait and frozen");
    if (!fit(view.user) || !fit(after)) return wrong("a user's name has at most 64 characters");
    if (!view.node.empty() && !valid_node_name(view.node))
        return wrong("'" + view.node + "' is not a node name");
    std::vector<std::string> args = {"state=" + view.state};
    if (!view.user.empty()) args.push_back("user=" + view.user);
    if (!view.node.empty()) args.push_back("node=" + view.node);
    const auto open = open_group(query);
    if (!open) return wrong(open.error().message);
    if (!view.group.empty()) {
        if (const auto id = parse_job_id(view.group); !id) return wrong(id.error().message);
        args.push_back("group=" + view.group);
    }
    auto list = !view.group.empty()      ? listed(asker, "list-jobs", args, page_rows, after)
                : view.state == "finish" ? folded_finished(asker, args, page_rows, after)
                                         : folded(asker, args, page_rows, *open, after);
    if (!list) return after.empty() ? away(list.error()) : wrong(list.error().message);
    lead_on(*list, query, {"state", "user", "node", "group"});
    return {200, view.state == "finish" ? "History" : "Jobs",
            jobs(*list, view, fold_of(query, *open))};
}

PageAnswer show_jobs(Asker& asker, const Query& query) {
    const std::string state = param(query, "state");
    if (state == "finish") return wrong("finished jobs are at /history");
    return show_some_jobs(asker, query, {state.empty() ? "live" : state, "", "", ""});
}

PageAnswer show_history(Asker& asker, const Query& query) {
    return show_some_jobs(asker, query, {"finish", "", "", ""});
}

PageAnswer show_job(Asker& asker, const Query& query) {
    const auto id = parse_job_id(param(query, "id"));
    if (!id) return wrong(id.error().message);
    const auto one = asker.ask("job", {id->text()});
    // A market that is away says so to any question.
    if (!one && !asker.ask("status", {})) return away(one.error());
    if (!one) return absent(one.error().message);
    const auto why = asker.ask("why", {id->text()});
    const auto story = asker.ask("story", {id->text()});
    const auto now = static_cast<double>(::time(nullptr));
    Html orders = notice(asker.told("/job/" + id->text()));
    orders.add(actions_of(*one, asker.visitor()));
    return {200, "Job " + id->text(),
            job(*one, why ? *why : Json::object(), story ? *story : Json(),
                story ? "" : story.error().message, now, orders)};
}

PageAnswer show_node(Asker& asker, const Query& query) {
    const std::string name = param(query, "id");
    if (!valid_node_name(name)) return wrong("'" + name + "' is not a node name");
    const auto open = open_group(query);
    if (!open) return wrong(open.error().message);
    const auto one = asker.ask("list-providers", {"node=" + name});
    if (!one) return away(one.error());
    if (!one->is_array() || one->empty()) return absent("the market knows no node '" + name + "'");
    const auto here = folded(asker, {"state=live", "node=" + name}, page_rows, *open);
    const auto before = listed(asker, "list-jobs", {"state=finish", "node=" + name}, board_rows);
    if (!here) return away(here.error());
    if (!before) return away(before.error());
    const auto why = asker.ask("why", {name});
    return {200, "Node " + name,
            node(one->front(), why ? *why : Json::object(), *here, *before,
                 {*open, "/node/" + name, "?open="})};
}

PageAnswer show_prices(Asker& asker, const Query& query) {
    struct Span {
        std::string_view name;
        int64_t span_s, row_s;
    };
    constexpr Span spans[] = {{"6h", 6 * 3'600, 300},
                              {"24h", 86'400, 900},
                              {"7d", 7 * 86'400, 7'200},
                              {"30d", 30 * 86'400, 43'200}};
    const std::string asked = param(query, "span");
    const auto span = std::find_if(std::begin(spans), std::end(spans), [&](const Span& s) {
        return s.name == (asked.empty() ? "24h" : asked);
    });
    if (span == std::end(spans)) return wrong("a span is one of 6h, 24h, 7d and 30d");
    const auto rows = price_rows(asker, span->span_s, span->row_s);
    if (!rows) return away(rows.error());
    return {200, "Prices",
            prices(*rows, std::string(span->name), static_cast<double>(span->span_s))};
}

// Shows the jobs on each node: those that have run, by their receipts, and those that run now.
PageAnswer show_time(Asker& asker, const Query& query) {
    struct Span {
        std::string_view name;
        int64_t span_s;
    };
    constexpr Span spans[] = {{"1h", 3'600}, {"6h", 6 * 3'600}, {"24h", 86'400}};
    constexpr int lanes = 20;
    const std::string asked = param(query, "span"), after = param(query, "after");
    const auto span = std::find_if(std::begin(spans), std::end(spans), [&](const Span& s) {
        return s.name == (asked.empty() ? "6h" : asked);
    });
    if (span == std::end(spans) || !fit(after)) return wrong("a span is one of 1h, 6h and 24h");
    auto list = listed(asker, "list-providers", {}, lanes, after);
    if (!list) return away(list.error());
    const auto now = static_cast<int64_t>(::time(nullptr));
    OnNodes what;
    what.to = static_cast<double>(now);
    what.from = static_cast<double>(now - span->span_s);
    what.span = span->name;
    const std::string since = "since=" + std::to_string((now - span->span_s) / 60 * 60);
    const auto collect = [&asker](const char* verb, const std::vector<std::string>& args,
                                  Json& into) -> Status {
        TRY_ASSIGN(const Feed::Part part, asker.part(verb, args, ""));
        if (part.rows.is_array()) into.insert(into.end(), part.rows.begin(), part.rows.end());
        return {};
    };
    for (const Json& n : list->rows) {
        const std::string node = "node=" + field(n, "node");
        auto done = collect("receipts", {node, since, "page=200"}, what.receipts);
        if (done) done = collect("list-jobs", {"state=run", node, "page=50"}, what.running);
        if (!done) return away(done.error());
    }
    lead_on(*list, query, {"span"});
    return {200, "Time", on_nodes(*list, what)};
}

PageAnswer show_ledger(Asker& asker, const Query& query) {
    const LedgerView view{param(query, "job"), param(query, "user"), param(query, "node")};
    const std::string after = param(query, "after");
    std::vector<std::string> args;
    if (!view.job.empty()) {
        const auto id = parse_job_id(view.job);
        if (!id) return wrong(id.error().message);
        args.push_back("job=" + id->text());
    }
    if (!view.node.empty() && !valid_node_name(view.node))
        return wrong("'" + view.node + "' is not a node name");
    if (!fit(view.user) || !fit(after)) return wrong("a user's name has at most 64 characters");
    if (!view.user.empty()) args.push_back("user=" + view.user);
    if (!view.node.empty()) args.push_back("node=" + view.node);
    auto receipts = listed(asker, "receipts", args, page_rows, after);
    if (!receipts && asker.ask("status", {})) return wrong(receipts.error().message);
    if (!receipts) return away(receipts.error());
    lead_on(*receipts, query, {"job", "user", "node"});
    const std::string whose = !view.user.empty() ? view.user : view.node;
    const auto accounts = asker.ask("account", {whose.empty() ? "-" : whose});
    return {200, "Ledger",
            ledger(accounts ? *accounts : Json(), accounts ? "" : accounts.error().message,
                   *receipts, view)};
}

PageAnswer show_statement(Asker& asker, const Query& query) {
    const StatementView view{param(query, "of")};
    const std::string after = param(query, "after");
    if (!fit(view.of) || !fit(after)) return wrong("a name has at most 64 characters");
    auto entries = listed(asker, "statement", {view.of.empty() ? "-" : view.of}, page_rows, after);
    if (!entries && asker.ask("status", {})) return wrong(entries.error().message);
    if (!entries) return away(entries.error());
    lead_on(*entries, query, {"of"});
    return {200, "Statement", statement(*entries, view)};
}

PageAnswer show_report(Asker& asker, const Query& query) {
    const std::string by = param(query, "by").empty() ? "user" : param(query, "by");
    if (by != "user" && by != "node" && by != "day")
        return wrong("a report is by user, node or day");
    const int64_t since = (::time(nullptr) - 30 * 86'400) / 86'400 * 86'400;
    const auto rows = asker.ask("report", {"by=" + by, "since=" + std::to_string(since)});
    if (!rows) return away(rows.error());
    return {200, "Report", report(*rows, by, "30 days")};
}

constexpr AnswerRoute all_routes[] = {{"/", "/", show_board},
                                      {"/nodes", "/nodes", show_nodes},
                                      {"/jobs", "/jobs", show_jobs},
                                      {"/history", "/history", show_history},
                                      {"/job/([^/]{1,64})", "/jobs", show_job},
                                      {"/node/([^/]{1,64})", "/nodes", show_node},
                                      {"/prices", "/prices", show_prices},
                                      {"/time", "/time", show_time},
                                      {"/ledger", "/ledger", show_ledger},
                                      {"/statement", "/ledger", show_statement},
                                      {"/report", "/report", show_report}};

}  // namespace

std::span<const AnswerRoute> routes() { return all_routes; }

std::string market_name(Feed& feed) {
    const auto status = feed.ask("status", {});
    return status ? field(*status, "hostname") : "";
}

}  // namespace souk::tools::web
