// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/web/actions.hpp"

#include <algorithm>
#include <iterator>

#include "tools/common/job_rows.hpp"
#include "tools/common/job_state.hpp"
#include "tools/web/tables.hpp"

namespace souk::tools::web {
namespace {

constexpr Action actions[] = {
    {"move", "Move", "It goes on there, after a short pause.", true, true, true, false},
    {"freeze", "Freeze",
     "It stops, and its memory is written to disk. It goes on when its bid wins a place again.",
     false, false, true, false},
    {"thaw", "Thaw", "It goes on where its bid wins a place.", false, false, true, false},
    {"hold", "Hold", "It stops, or goes on waiting, and does not run until it is released.", false,
     false, false, false},
    {"release", "Release", "The market decides again whether and where it runs.", false, false,
     false, false},
    {"cancel", "Cancel", "All of its processes end now. Nothing brings it back.", false, false,
     false, true}};

// Is there any use in it now? What an operator holds its user neither frees nor holds.
bool fits(const Action& action, const Json& job, const Visitor& visitor) {
    const std::string status = field(job, "status"), hold = field(job, "hold");
    const bool held = hold != "-";
    if (status == "finish") return false;
    if (action.ends_it) return true;
    if (!visitor.operates && (action.operates || (held && hold != "by_user"))) return false;
    const std::string_view verb = action.verb.text;
    if (verb == "move") return status != "wait";
    if (verb == "freeze") return status != "wait" && status != "suspend";
    if (verb == "thaw") return status == "suspend";
    return held == (verb == "release");
}

void hidden_key(Html& h, const std::string& form_key) {
    h.markup("<input type=\"hidden\" name=\"form\" value=\"").text(form_key).markup("\">");
}

// A list of the nodes with what each costs; a node where the job is, or that takes none, cannot be
// chosen.
void choose_node(Html& h, const Json& job, const Json& nodes, bool more) {
    h.markup("<label>To node ");
    if (more)
        h.markup(
            "<input name=\"node\" required list=\"nodes\" maxlength=\"32\" "
            "autocomplete=\"off\"></label><datalist id=\"nodes\">");
    else
        h.markup("<select name=\"node\" required><option value=\"\">choose one</option>");
    for (const Json& node : nodes) {
        const std::string name = field(node, "node"), status = field(node, "status");
        const std::string next = node_next_price(node);
        const bool here = name == field(job, "where") && field(job, "status") == "run";
        h.markup("<option value=\"").text(name);
        h.markup(!here && (status == "free" || status == "busy") ? Markup("\">")
                                                                 : Markup("\" disabled>"));
        h.text(name).markup(": ").text(here ? "it runs there" : status);
        h.markup(", speed ").text(field(node, "speed"));
        if (next != "-") h.markup(", next price ").text(with_unit(next, an_hour.text));
        h.markup("</option>");
    }
    h.markup(more ? Markup("</datalist>") : Markup("</select></label>"));
}

}  // namespace

const Action* action_named(std::string_view verb) {
    const auto found = std::find_if(std::begin(actions), std::end(actions),
                                    [verb](const Action& a) { return a.verb.text == verb; });
    return found == std::end(actions) ? nullptr : found;
}

Html login_form(const std::string& form_key, const std::string& trouble) {
    Html h;
    h.markup("<h1>Log in</h1>");
    if (!trouble.empty())
        h.markup("<p class=\"warning\" role=\"alert\">").text(trouble).markup("</p>");
    h.markup(
        "<p>At a terminal, <code>marketctl web-token</code> prints a token for you. It is good "
        "once, for two minutes.</p><form method=\"post\" action=\"/login\">");
    hidden_key(h, form_key);
    h.markup(
        "<label>Token <input name=\"token\" required autocomplete=\"off\" spellcheck=\"false\" "
        "autocapitalize=\"none\" maxlength=\"64\"></label><button>Log in</button></form>");
    return h;
}

Html actions_of(const Json& job, const Visitor& visitor) {
    Html h;
    if (visitor.name.empty()) return h;
    const bool own = job.contains("uid") && job["uid"].is_number_unsigned() &&
                     job["uid"].get<uint64_t>() == visitor.uid;
    if (!own && !visitor.operates) return h;
    for (const Action& a : actions) {
        if (!fits(a, job, visitor)) continue;
        h.markup("<a class=\"button").markup(a.ends_it ? Markup(" danger") : Markup(""));
        h.markup("\" href=\"/job/").in_address(field(job, "id"));
        h.markup("/").markup(a.verb).markup("\">").markup(a.name).markup("</a> ");
    }
    if (h.empty()) return h;
    Html all;
    all.markup("<nav class=\"orders\" aria-label=\"Orders\">").add(h).markup("</nav>");
    return all;
}

Html action_question(const Action& action, const Json& job, const Visitor& visitor,
                     const Json& nodes, bool more) {
    const std::string id = field(job, "id"), name = field(job, "name");
    Html h;
    h.markup("<h1>").markup(action.name).markup(" job ").text(id).markup("?</h1><p>");
    if (name != "-" && !name.empty()) h.text(name).markup(": ");
    h.text(job_state(job)).markup("; ").text(field(job, "user")).markup(". ");
    h.markup(action.question).markup("</p><form method=\"post\" action=\"/job/");
    h.in_address(id).markup("/").markup(action.verb).markup("\">");
    hidden_key(h, visitor.form_key);
    if (action.takes_node) choose_node(h, job, nodes, more);
    if (action.may_hold && visitor.operates)
        h.markup(
            "<label><input type=\"checkbox\" name=\"hold\" value=\"yes\"> until it is released"
            "</label>");
    h.markup(action.ends_it ? Markup("<button class=\"danger\">") : Markup("<button>"));
    h.markup(action.name)
        .markup(" job ")
        .text(id)
        .markup("</button> <a href=\"/job/")
        .in_address(id);
    return h.markup("\">Leave it as it is</a></form>"), h;
}

Html notice(const std::string& text) {
    Html h;
    if (!text.empty()) h.markup("<p class=\"notice\" role=\"status\">").text(text).markup("</p>");
    return h;
}

}  // namespace souk::tools::web
