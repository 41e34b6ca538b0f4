// SPDX-License-Identifier: GPL-2.0-or-later
// Writes the pages with which a visitor who has logged in gives orders: the form of the log-in, the
// orders for a job, and the question before one is given. Pure. The market decides what a visitor
// may do; these pages only offer what it would not refuse anyway.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/web/pages.hpp"

namespace souk::tools::web {

struct Action {
    Markup verb, name, question;
    bool operates;    // an operator's alone
    bool takes_node;  // where it goes
    bool may_hold;    // it may last until the job is released: by an operator's word
    bool ends_it;     // stands apart, because nothing brings the job back
};
// Returns null if there is no such action.
const Action* action_named(std::string_view verb);

// `trouble` says why the last token was not taken; empty: there was none.
Html login_form(const std::string& form_key, const std::string& trouble);
// Writes links to the orders that this visitor may give for the job; none, if he may give none.
Html actions_of(const Json& job, const Visitor& visitor);
// `nodes` are those to choose from, as the market lists them; with `more` there are others, and
// any name can be typed.
Html action_question(const Action& action, const Json& job, const Visitor& visitor,
                     const Json& nodes, bool more);
// Writes above a page what was ordered.
Html notice(const std::string& text);

}  // namespace souk::tools::web
