// SPDX-License-Identifier: GPL-2.0-or-later
// What an agentd knows of the returns of its node's owner, for him.
#pragma once

#include "tools/common/ask.hpp"

namespace souk::tools {

// The answer to `provider-history` as tables. Errors: it is not what replies.md says.
Result<std::string> provider_history_text(const Answer& answer);

}  // namespace souk::tools
