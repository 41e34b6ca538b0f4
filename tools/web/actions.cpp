// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/web/actions.hpp"

#include <algorithm>
#include <iterator>

#include "tools/common/job_state.hpp"
#include "tools/web/tables.hpp"

namespace souk::tools::web {
namespace {

constexpr Action actions[] = {
    {"cancel", "Cancel", "All of its processes end now. Nothing brings it back.", false, false,
     false},
    {"move", "Move", "It goes on there, after a short pause.", true, true, true},
    {"freeze", "Freeze", "It stops, and its memory is written to disk.", true, false, true},
    {"thaw", "Thaw", "It goes on where the market places it.", true, false, true},
    {"release", "Release", "The market decides again where it runs.", true, false, false}};

// Is there any use in it now?
bool fits(const Action& action, const Json& job) {
    const std::string status = field(job, "status");
    if (status == "finish") return false;
    if (action.verb.text == "freeze" || action.verb.text == "move") return status != "wait";
    if (action.verb.text == "thaw") return status == "suspend";
    if (action.verb.text == "release")
        return field(job, "hold") != "-" && !field(job, "hold").empty();
    return true;
}

void hidden_key(Html& h, const std::string& form_key) {
    h.markup("<input type=\"hidden\" name=\"form\" value=\"").text(form_key).markup("\">");
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
        if ((a.operates && !visitor.operates) || !fits(a, job)) continue;
        h.markup("<a class=\"button\" href=\"/job/").in_address(field(job, "id"));
        h.markup("/").markup(a.verb).markup("\">").markup(a.name).markup("</a> ");
    }
    if (h.empty()) return h;
    Html all;
    all.markup("<nav class=\"pager\" aria-label=\"Orders\">").add(h).markup("</nav>");
    return all;
}

Html action_question(const Action& action, const Json& job, const std::string& form_key,
                     const std::vector<std::string>& nodes) {
    const std::string id = field(job, "id"), name = field(job, "name");
    Html h;
    h.markup("<h1>").markup(action.name).markup(" job ").text(id).markup("?</h1><p>");
    if (name != "-" && !name.empty()) h.text(name).markup(": ");
    h.text(job_state(job)).markup("; ").text(field(job, "user")).markup(". ");
    h.markup(action.question).markup("</p><form method=\"post\" action=\"/job/");
    h.in_address(id).markup("/").markup(action.verb).markup("\">");
    hidden_key(h, form_key);
    if (action.takes_node) {
        h.markup(
            "<label>To node <input name=\"node\" required list=\"nodes\" maxlength=\"32\" "
            "autocomplete=\"off\"></label><datalist id=\"nodes\">");
        for (const std::string& node : nodes)
            h.markup("<option value=\"").text(node).markup("\"></option>");
        h.markup("</datalist>");
    }
    if (action.may_hold)
        h.markup(
            "<label><input type=\"checkbox\" name=\"hold\" value=\"yes\"> until it is released"
            "</label>");
    h.markup("<button>").markup(action.name).markup("</button> <a href=\"/job/").in_address(id);
    return h.markup("\">Leave it as it is</a></form>"), h;
}

Html notice(const std::string& text) {
    Html h;
    if (!text.empty()) h.markup("<p class=\"notice\" role=\"status\">").text(text).markup("</p>");
    return h;
}

}  // namespace souk::tools::web
