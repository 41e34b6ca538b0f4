// SPDX-License-Identifier: GPL-2.0-or-later
// The answer to `decisions`: a part of the text of the decision log (tools/common/replies.md).
#pragma once

#include "kernel/wire/messages.hpp"
#include "market/core/market.hpp"
#include "market/daemon/decision_shell.hpp"

namespace souk {

// The arguments: FROM TO USER. The log says to root whose jobs are whose, and to each user which
// are his own. `log`: null: the market keeps none.
wire::CtlReply decisions_reply(const market::Market& market, const DecisionShell* log,
                               const wire::CtlRequest& request);

}  // namespace souk
