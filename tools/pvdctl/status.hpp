// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "kernel/base/result.hpp"
#include "tools/common/ask.hpp"

namespace souk::tools {

using Json = nlohmann::ordered_json;

// lent() says what guests may have now: "0.5 CPUs, 2.0 GB". lent_why() says by which of the owner's
// rules.
std::string lent(const Json& p);
std::string lent_why(const Json& p, const char* holds);
// The answer to `provider-status` as lines. Errors: it is not what replies.md says.
Result<std::string> provider_status_text(const Answer& answer);
// Says while guests leave, after so long, how many are still here, and what is sent of them.
std::string leaving_text(const Answer& answer, Nanos after);
// Says after `market off` who is still here, and why.
Result<std::string> provider_left_text(const Answer& answer);
// The line of `watch`: what an owner wants to hear of when it changes.
Result<std::string> watch_text(const Answer& answer);
// Says after `evict` what is still here.
Result<std::string> evicted_text(const Answer& answer);

}  // namespace souk::tools
