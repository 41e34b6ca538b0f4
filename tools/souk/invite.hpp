// SPDX-License-Identifier: GPL-2.0-or-later
// The lines by which nodes join a new market, each to be pasted on its node.
#pragma once

#include <string>
#include <vector>

#include "kernel/base/result.hpp"
#include "tools/common/ask.hpp"

namespace souk {

// Parses names with commas between them. Errors: one is no node name, or stands there twice.
Result<std::vector<std::string>> names_of(const std::string& list);
// Returns the address at which other machines reach a daemon of this one that listens on `listen`
// (empty: the market's default): the host of it, else the first address of this machine that is not
// its own loopback. Errors: this machine has none.
Result<std::string> reached_at(const std::string& listen);
// Has the market make a token for each name, and prints the lines. The market may just be starting.
Status invite(const tools::FindSocket& find, const std::string& names, const std::string& listen);

}  // namespace souk
