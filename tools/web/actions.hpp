// SPDX-License-Identifier: GPL-2.0-or-later
// What a visitor who has logged in can order, as pages: the form of the log-in, what can be done to
// a job, and the question before it is done. Pure. The market decides what he may; these pages only
// offer what it would not refuse anyway.
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
    bool may_hold;
};
// Nothing: there is no such action.
const Action* action_named(std::string_view verb);

// `trouble`: why the last token was not taken; empty: there was none.
Html login_form(const std::string& form_key, const std::string& trouble);
// Links to what this visitor may order of it; none, if that is nothing.
Html actions_of(const Json& job, const Visitor& visitor);
// `nodes`: names to choose from.
Html action_question(const Action& action, const Json& job, const std::string& form_key,
                     const std::vector<std::string>& nodes);
// What was ordered, above a page.
Html notice(const std::string& text);

}  // namespace souk::tools::web
