// SPDX-License-Identifier: GPL-2.0-or-later
// marketctl why: why a job does not run or is where it is, why a node takes none, what set a price.
#pragma once

#include <span>

#include "tools/common/ctl.hpp"
#include "tools/marketctl/decisions.hpp"

namespace souk::tools {

// JOB, NODE, price JOB|NODE, or codes. Errors: wrong usage.
Result<CtlQuestion> reasons_question(std::span<char*> words, const DecisionOptions& options);

}  // namespace souk::tools
