// SPDX-License-Identifier: GPL-2.0-or-later
// souk setup market|node, souk token, souk node, souk operator: who may take part in a market.
#pragma once

#include <string_view>

namespace souk {

bool is_trust_verb(std::string_view verb);
// Runs one of these verbs with its own arguments; returns an exit status as of verbs.hpp.
int cmd_trust(int argc, char** argv);

}  // namespace souk
