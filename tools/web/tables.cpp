// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/web/tables.hpp"

#include "tools/common/job_rows.hpp"
#include "tools/common/job_state.hpp"
#include "tools/common/peer_rows.hpp"

namespace souk::tools::web {
namespace {

// Names the node where the job is, the one where it goes, and how much has been sent; of a group
// the first nodes where its jobs run.
void where(Html& h, const Json& j) {
    if (is_group(j)) {
        const Json nodes = j.value("where", Json::array());
        for (const Json& node : nodes) {
            if (&node != &nodes.front()) h.markup(" ");
            if (node.is_string()) node_link(h, node.get<std::string>());
        }
        const size_t all = j.value("nodes", size_t{0});
        if (all > nodes.size())
            h.markup(" and ").text(std::to_string(all - nodes.size())).markup(" more");
        return;
    }
    if (const std::string at = field(j, "where"); at != "-") node_link(h, at);
    if (const std::string to = field(j, "going_to"); to != "-") node_link(h.markup(" to "), to);
    if (const std::string part = sent(j); part != "-") h.markup(", ").text(three_digits(part));
}

void places(Html& h, const Json& j) {
    bool first = true;
    for (const Json& place : j.value("places", Json::array())) {
        if (!std::exchange(first, false)) h.markup(" ");
        if (place.is_string()) node_link(h, place.get<std::string>());
    }
}

// Writes a class for each word of the text that is one, so that a style sheet colours it.
Html& coloured(Html& h, const std::string& word, const std::string& text) {
    h.markup("<span class=\"state ").text(word.substr(0, word.find_first_of(" ,")));
    return h.markup("\">").text(text).markup("</span>");
}

void states(Html& h, const Json& row) {
    if (!is_group(row)) {
        write_state(h, row);
        return;
    }
    const std::string all = row_states(row);  // "3 run, 6 frozen"
    for (size_t at = 0; at < all.size();) {
        const size_t end = std::min(all.find(", ", at), all.size());
        const std::string one = all.substr(at, end - at);
        coloured(at > 0 ? h.markup(" ") : h, one.substr(one.find(' ') + 1), one);
        at = end + 2;
    }
}

// A group of finished jobs leads to them.
Column finished_column() {
    return {"Job", false,
            [](Html& h, const Json& j) {
                if (!is_group(j)) {
                    job_link(h, field(j, "id"));
                    return;
                }
                h.markup("<a href=\"/history?group=").in_address(row_id(j)).markup("\">");
                h.text(row_title(j)).markup("</a>");
            },
            "id"};
}

// Links a group to the page on which its jobs stand below it, and back.
Column row_column(const Fold& fold) {
    return {"Job", false,
            [fold](Html& h, const Json& j) {
                if (!is_group(j)) {
                    job_link(h, field(j, "id"));
                    return;
                }
                const std::string id = row_id(j);
                const bool open = id == fold.open;
                h.markup("<a class=\"group\" href=\"").text(fold.path);
                if (!open) h.text(fold.query).in_address(id);
                h.markup("\" aria-expanded=\"").markup(open ? Markup("true") : Markup("false"));
                h.markup("\">").text(row_title(j)).markup("</a>");
            },
            "id"};
}

void why(Html& h, const Json& j) {
    if (!is_group(j)) {
        h.text(field(j, "comment"));
        return;
    }
    const Json& first = job_of(j);
    if (field(first, "status") != "run") h.text(field(first, "comment")).markup(" ");
    h.markup("<a href=\"/jobs?group=").in_address(row_id(j)).markup("\">");
    h.markup(field(j, "kind") == "gang" ? Markup("its components") : Markup("its jobs"));
    h.markup("</a>");
}

std::string run_time(const Json& j) { return three_digits(duration(j, "runtime_s")); }

}  // namespace

std::string with_unit(const std::string& figure, std::string_view unit) {
    return figure == "-" || figure == "0" ? figure : figure + " " + std::string(unit);
}

Column plain_column(Markup title, const char* key, Markup kind) {
    return {title, false, [key](Html& h, const Json& j) { h.text(field(j, key)); }, kind};
}
Column number_column(Markup title, const char* key, Markup kind) {
    return {title, true, [key](Html& h, const Json& j) { h.text(field(j, key)); }, kind};
}
Column money_column(Markup title, const char* key, Markup unit, Markup kind) {
    return {title, true, [key](Html& h, const Json& j) { h.text(money_figure(j, key)); }, kind,
            unit};
}
Column text_column(Markup title, std::string (*text)(const Json&), bool number, Markup kind) {
    return {title, number, [text](Html& h, const Json& j) { h.text(text(j)); }, kind};
}

Html& node_link(Html& h, const std::string& name) {
    return h.markup("<a href=\"/node/").in_address(name).markup("\">").text(name).markup("</a>");
}
Html& job_link(Html& h, const std::string& id) {
    return h.markup("<a href=\"/job/").in_address(id).markup("\">").text(id).markup("</a>");
}
Html& write_state(Html& h, const Json& one) {
    const bool is_job = one.contains("id");
    const std::string text = is_job ? job_state(one) : node_state(one);
    return coloured(h, is_job ? text : field(one, "status"), text);
}

Html table(Markup caption, const std::vector<Column>& columns, const Json& rows, Markup none) {
    Html h;
    if (rows.empty()) return h.markup("<p class=\"none\">").markup(none).markup("</p>"), h;
    const auto classes = [&h](const Column& c, bool applies) {
        std::string all = c.number ? "number" : "";
        for (const std::string_view one : {c.kind.text, std::string_view(applies ? "" : "no")})
            if (!one.empty()) (all += all.empty() ? "" : " ") += one;
        if (!all.empty()) h.markup(" class=\"").text(all).markup("\"");
    };
    h.markup("<table><caption>").markup(caption).markup("</caption><thead><tr>");
    for (const Column& c : columns) {
        h.markup("<th scope=\"col\"");
        classes(c, true);
        h.markup(">").markup(c.title);
        if (!c.unit.text.empty()) h.markup(" <small>").markup(c.unit).markup("</small>");
        h.markup("</th>");
    }
    h.markup("</tr></thead><tbody>");
    for (const Json& row : rows) {
        h.markup(row.contains("part_of") ? Markup("<tr class=\"part\">") : Markup("<tr>"));
        for (const Column& c : columns) {
            Html cell;
            c.cell(cell, row);
            const bool applies = !cell.empty() && cell.str() != "-";
            h.markup("<td data-title=\"").markup(c.title).markup("\"");
            classes(c, applies);
            h.markup("><span>");
            if (applies)
                h.add(cell).markup("</span></td>");
            else
                h.markup("-</span></td>");
        }
        h.markup("</tr>");
    }
    return h.markup("</tbody></table>"), h;
}

const std::vector<Column>& node_columns() {
    static const std::vector<Column> columns = {
        {"Node", false, [](Html& h, const Json& n) { node_link(h, field(n, "node")); }, "id"},
        {"State", false, [](Html& h, const Json& n) { write_state(h, n); }, "states"},
        number_column("Guests", "guests"),
        text_column(
            "Jobs' load", [](const Json& n) { return percent(n, "load_permille"); }, true),
        {"Price", true, [](Html& h, const Json& n) { h.text(node_price(n)); }, "", an_hour},
        {"Next price", true, [](Html& h, const Json& n) { h.text(node_next_price(n)); }, "",
         an_hour},
        money_column("Reserve", "reserve", an_hour, "minor"),
        number_column("Speed", "speed"),
        number_column("CPUs", "cpus"),
        text_column(
            "Free memory", [](const Json& n) { return three_digits(free_memory(n)); }, true),
        money_column("Earned", "earned", "", "minor"),
    };
    return columns;
}

const std::vector<Column>& site_columns() {
    static const std::vector<Column> columns = {
        {"Site", false, [](Html& h, const Json& p) { h.text(field(p, "site")); }, "id"},
        text_column("State", peer_state),
        text_column(
            "Since", [](const Json& p) { return local_time(p, "since_unix_s"); }, false, "minor"),
        number_column("Its jobs here", "guests"),
        number_column("Our jobs there", "lent"),
        text_column("Money", [](const Json& p) { return owes_text(p, "owes"); }),
    };
    return columns;
}

std::vector<Column> job_columns(const Fold& fold) {
    return {
        row_column(fold),
        text_column("Name", row_name, false, "name"),
        {"State", false, states, "states"},
        {"Where", false, where},
        {"Bid", true, [](Html& h, const Json& j) { h.text(money_figure(job_of(j), "value")); }, "",
         an_hour},
        text_column("Price", row_price, true),
        money_column("Cost", "cost"),
        text_column("Run", run_time, true),
        {"User", false, [](Html& h, const Json& j) { h.text(field(job_of(j), "user")); }, "minor"},
        {"Why", false, why, "words"},
    };
}

const std::vector<Column>& finished_columns() {
    static const std::vector<Column> columns = {
        finished_column(),
        text_column("Name", row_name, false, "name"),
        {"Exit", true, [](Html& h, const Json& j) { h.text(field(j, "exit")); }},
        text_column("Ended", [](const Json& j) { return local_time(j, "ended_unix_s"); }),
        text_column("Run", run_time, true),
        text_column(
            "Wait", [](const Json& j) { return three_digits(duration(j, "wait_s")); }, true),
        number_column("Moves", "migrations", "minor"),
        number_column("Freezes", "freezes", "minor"),
        {"Ran on", false, places},
        money_column("Cost", "cost"),
        {"User", false, [](Html& h, const Json& j) { h.text(field(job_of(j), "user")); }, "minor"},
    };
    return columns;
}

Html pager(const Listed& list, Markup path) {
    Html h;
    if (list.first && list.next.empty()) return h;
    h.markup("<nav class=\"pager\" aria-label=\"Pages\">");
    if (!list.first) h.markup("<a href=\"").markup(path).markup("\">To the beginning</a> ");
    if (!list.next.empty())
        h.markup("<a rel=\"next\" href=\"").markup(path).text(list.next).markup("\">More</a>");
    return h.markup("</nav>"), h;
}

Html choice(Markup label, Markup address, std::span<const Place> places, std::string_view chosen) {
    Html h;
    h.markup("<nav class=\"pager\" aria-label=\"").markup(label).markup("\">");
    for (const Place& p : places) {
        h.markup("<a href=\"").markup(address).markup(p.path).markup("\"");
        if (chosen == p.path.text) h.markup(" aria-current=\"true\"");
        h.markup(">").markup(p.name).markup("</a> ");
    }
    return h.markup("</nav>"), h;
}

void text_input(Html& h, Markup name, Markup label, const std::string& value) {
    h.markup("<label>").markup(label).markup(" <input name=\"").markup(name).markup("\" value=\"");
    h.text(value).markup("\" maxlength=\"64\"></label> ");
}

Facts& Facts::add(Markup name, const std::string& value) {
    if (value.empty() || value == "-") return *this;
    h_.markup("<div><dt>").markup(name).markup("</dt><dd>").text(value).markup("</dd></div>");
    return *this;
}
Facts& Facts::add(Markup name, const Html& value) {
    if (value.empty()) return *this;
    h_.markup("<div><dt>").markup(name).markup("</dt><dd>").add(value).markup("</dd></div>");
    return *this;
}
Html Facts::take() {
    Html all;
    all.markup("<dl>").add(h_).markup("</dl>");
    return all;
}

}  // namespace souk::tools::web
