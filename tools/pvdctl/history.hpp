// SPDX-License-Identifier: GPL-2.0-or-later
// Shows the owner of a node what his agentd knows of his returns.
#pragma once

#include "tools/common/ask.hpp"

namespace souk::tools {

// The answer to `provider-history` as tables. Errors: it is not what replies.md says.
Result<std::string> provider_history_text(const Answer& answer);

}  // namespace souk::tools
