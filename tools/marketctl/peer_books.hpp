// SPDX-License-Identifier: GPL-2.0-or-later
// marketctl ledger verify --peer SITE: the entries between this site and another one in both books
// (market/core/site_entries.hpp), each difference in one line. The other's book comes over the
// connection of the two markets, or from a file that its operator has made with `marketctl ledger
// export`.
#pragma once

#include <span>
#include <string>

#include "tools/common/ctl.hpp"

namespace souk::tools {

inline constexpr const char* books_verb = "ledger of a peer";
// `words`: `verify` with --peer (`site`), and perhaps a file; else the peer's market is asked; or
// `export SITE`: this site's entries with that one, for the operator there, one JSON object a line.
// Errors: other words.
Result<CtlQuestion> books_question(std::span<char*> words, const std::string& site,
                                   const std::string& file);

}  // namespace souk::tools
