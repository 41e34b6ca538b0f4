// SPDX-License-Identifier: GPL-2.0-or-later
// marketctl -X: one question to this market and to its peers (docs/sites.md), at the same time, and
// one answer. Names of what is of another site have that before them: uni:n1.7. Each site has a
// limit, and those that did not answer are named.
#pragma once

#include <string>

#include "tools/common/ctl.hpp"
#include "tools/common/table.hpp"

namespace souk::tools {

// Makes a question to `sites` ("all", or names with commas) of one to the own market. Errors: a
// question that only a site's own market answers.
Status ask_everywhere(const std::string& sites, CtlQuestion& question);
// Reads what another site has said: it may be anything.
Result<Json> read_claim(const std::string& text);
// Gives the names in the answer that site before them. The question is about a job or a node that
// was named with its site.
void show_of_site(const std::string& site, CtlQuestion& question);

}  // namespace souk::tools
