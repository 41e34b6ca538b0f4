// SPDX-License-Identifier: GPL-2.0-or-later
// srun --quote: what a job would get and cost, asked of the market through the home agentd. Nothing
// is submitted.
#pragma once

#include "tools/srun/options.hpp"

namespace souk::tools {

// Prints the answer on stdout, or its JSON. Errors: no agentd, the market is away, it gives no
// quote now.
Status quote(const SrunOptions& options, const std::string& socket);
// Asks, before a job is submitted, whether its deadline can be promised. Says on stderr for how
// much. Errors: it cannot, with what could be.
Status ask_for_promise(const SrunOptions& options, const std::string& socket);

}  // namespace souk::tools
