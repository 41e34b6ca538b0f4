// SPDX-License-Identifier: GPL-2.0-or-later
// pvdctl guests: what a node holds right now, as text.
#pragma once

#include <string>

#include "kernel/base/result.hpp"
#include "tools/common/ask.hpp"

namespace souk::tools {

// A line for each guest, then one for each job whose home the node is.
Result<std::string> guests_text(const Answer& answer);
// All that is known of each entry.
Result<std::string> guest_text(const Answer& answer);

}  // namespace souk::tools
