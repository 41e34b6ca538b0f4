// SPDX-License-Identifier: GPL-2.0-or-later
// Answers of marketd about money: accounts, receipts, and whether the ledger is what it was
// (tools/common/replies.md says which keys). A user sees his own, root everything. Errors: one line
// that says why not.
#pragma once

#include <string>
#include <vector>

#include "market/core/market.hpp"
#include "market/store/receipts.hpp"

namespace souk {

// `who`: "market", a node, a user by name or number; "-": all that `uid` may see.
Result<std::string> account_reply(const market::Market& market, const std::string& who,
                                  uint32_t uid);

// `filters`: KEY=VALUE of job, user, node, since (Unix seconds), limit. `after` and `next`: where
// the list goes on.
Result<std::string> receipts_reply(const market::Market& market, const ReceiptBook& book,
                                   const std::vector<std::string>& filters,
                                   const std::string& after, uint32_t uid, std::string& next);

}  // namespace souk
