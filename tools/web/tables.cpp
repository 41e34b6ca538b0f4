// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/web/tables.hpp"

#include "tools/common/job_state.hpp"

namespace souk::tools::web {
namespace {

std::string name_or_command(const Json& j) {
    const std::string name = field(j, "name");
    return name == "-" ? field(j, "command") : name;
}

// Names the node where the job is, the one where it goes, and how much has been sent.
void where(Html& h, const Json& j) {
    if (const std::string at = field(j, "where"); at != "-") node_link(h, at);
    if (const std::string to = field(j, "going_to"); to != "-") node_link(h.markup(" to "), to);
    if (const std::string part = sent(j); part != "-") h.markup(", ").text(part);
}

void places(Html& h, const Json& j) {
    bool first = true;
    for (const Json& place : j.value("places", Json::array())) {
        if (!std::exchange(first, false)) h.markup(" ");
        if (place.is_string()) node_link(h, place.get<std::string>());
    }
}

void state(Html& h, const Json& j) {
    const std::string text = field(j, "status");
    h.markup("<span class=\"state ").text(text.substr(0, text.find_first_of(" ,"))).markup("\">");
    h.text(j.contains("id") ? job_state(j) : node_state(j)).markup("</span>");
}

Column job_column() {
    return {"Job", false, [](Html& h, const Json& j) { job_link(h, field(j, "id")); }};
}

}  // namespace

std::string or_none(const std::string& text) { return text == "-" || text == "0" ? "none" : text; }

Column plain_column(Markup title, const char* key) {
    return {title, false, [key](Html& h, const Json& j) { h.text(or_none(field(j, key))); }};
}
Column number_column(Markup title, const char* key) {
    return {title, true, [key](Html& h, const Json& j) { h.text(or_none(field(j, key))); }};
}
Column money_column(Markup title, const char* key) {
    return {title, true, [key](Html& h, const Json& j) { h.text(or_none(rounded_money(j, key))); }};
}
Column text_column(Markup title, std::string (*text)(const Json&), bool number) {
    return {title, number, [text](Html& h, const Json& j) { h.text(or_none(text(j))); }};
}

Html& node_link(Html& h, const std::string& name) {
    return h.markup("<a href=\"/node/").in_address(name).markup("\">").text(name).markup("</a>");
}
Html& job_link(Html& h, const std::string& id) {
    return h.markup("<a href=\"/job/").in_address(id).markup("\">").text(id).markup("</a>");
}

Html table(Markup caption, const std::vector<Column>& columns, const Json& rows, Markup none) {
    Html h;
    if (rows.empty()) return h.markup("<p class=\"none\">").markup(none).markup("</p>"), h;
    h.markup("<table><caption>").markup(caption).markup("</caption><thead><tr>");
    for (const Column& c : columns) {
        h.markup("<th scope=\"col\"");
        if (c.number) h.markup(" class=\"number\"");
        h.markup(">").markup(c.title).markup("</th>");
    }
    h.markup("</tr></thead><tbody>");
    for (const Json& row : rows) {
        h.markup("<tr>");
        for (const Column& c : columns) {
            h.markup("<td data-title=\"").markup(c.title).markup("\"");
            if (c.number) h.markup(" class=\"number\"");
            c.cell(h.markup("><span>"), row);
            h.markup("</span></td>");
        }
        h.markup("</tr>");
    }
    return h.markup("</tbody></table>"), h;
}

const std::vector<Column>& node_columns() {
    static const std::vector<Column> columns = {
        {"Node", false, [](Html& h, const Json& n) { node_link(h, field(n, "node")); }},
        {"State", false, state},
        number_column("Guests", "guests"),
        text_column(
            "Jobs' load", [](const Json& n) { return percent(n, "load_permille"); }, true),
        money_column("Price", "current_price"),
        money_column("Next price", "next_price"),
        money_column("Reserve", "reserve"),
        number_column("Speed", "speed"),
        number_column("CPUs", "cpus"),
        text_column("Free memory", free_memory, true),
        money_column("Earned", "earned"),
    };
    return columns;
}

const std::vector<Column>& job_columns() {
    static const std::vector<Column> columns = {
        job_column(),
        plain_column("User", "user"),
        {"State", false, state},
        {"Where", false, where},
        money_column("Worth", "value"),
        money_column("Price", "price"),
        money_column("Cost", "cost"),
        text_column(
            "Run", [](const Json& j) { return duration(j, "runtime_s"); }, true),
        text_column("Name", name_or_command),
        plain_column("Why", "comment"),
    };
    return columns;
}

const std::vector<Column>& finished_columns() {
    static const std::vector<Column> columns = {
        job_column(),
        plain_column("User", "user"),
        text_column("Ended", [](const Json& j) { return local_time(j, "ended_unix_s"); }),
        text_column(
            "Run", [](const Json& j) { return duration(j, "runtime_s"); }, true),
        text_column(
            "Wait", [](const Json& j) { return duration(j, "wait_s"); }, true),
        number_column("Moves", "migrations"),
        number_column("Freezes", "freezes"),
        {"Ran on", false, places},
        money_column("Cost", "cost"),
        {"Exit", true, [](Html& h, const Json& j) { h.text(field(j, "exit")); }},
        text_column("Name", name_or_command),
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
