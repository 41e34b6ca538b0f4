// SPDX-License-Identifier: GPL-2.0-or-later
// marketctl decisions export and why price: the decision log as text (docs/decision-log.md), and
// what souk-audit says of a price by it.
#pragma once

#include <span>
#include <string>

#include "tools/common/ctl.hpp"

namespace souk::tools {

struct DecisionOptions {
    std::string from, to, at;
};

// `words`: what follows "decisions"; `user`: whose jobs are named (empty: all that may be). Errors:
// a mistake on the command line.
Result<CtlQuestion> decisions_question(std::span<char*> words, const DecisionOptions& options,
                                       const std::string& user);
// `words`: what follows "why-price": a job or a node.
Result<CtlQuestion> why_question(std::span<char*> words, const DecisionOptions& options);

}  // namespace souk::tools
