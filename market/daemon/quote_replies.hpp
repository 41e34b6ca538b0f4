// SPDX-License-Identifier: GPL-2.0-or-later
// Answers of marketd about prices, past and offered (tools/common/replies.md says which keys).
// Errors: one line that says why not.
#pragma once

#include <string>
#include <vector>

#include "kernel/wire/messages.hpp"
#include "market/core/market.hpp"

namespace souk {

// args: the first Unix second, and how many seconds make a row. `after` and `next`: where the list
// goes on.
Result<std::string> prices_reply(const market::Market& market, const std::vector<std::string>& args,
                                 const std::string& after, std::string& next);

// args: KEY=VALUE of price, budget, memory, cpus, finish_ns, pace, runtime_ns. For a home's user;
// when the market has solved, so that the state that it is worked out on is whole. `by_program`:
// another program decides than this would.
wire::CtlReply quote_reply(const market::Market& market, const NodeName& home, bool by_program,
                           const wire::CtlRequest& request, Nanos now);

}  // namespace souk
