// SPDX-License-Identifier: GPL-2.0-or-later
// Answers about money that is moved: deposits, transfers, payouts; and the statement of an account.
#pragma once

#include <string>
#include <vector>

#include "market/core/market.hpp"
#include "market/store/receipts.hpp"

namespace souk {

// `verb`: deposit, withdraw, transfer or payout. Errors: also what is wrong with the words.
Result<std::string> move_money_reply(market::Market& market, const std::string& verb,
                                     const std::vector<std::string>& args, uint32_t uid, Nanos now);
// `args`: whose account ("-": one's own), then perhaps since= and limit=.
Result<std::string> statement_reply(const market::Market& market, const ReceiptBook& book,
                                    const std::vector<std::string>& args, const std::string& after,
                                    uint32_t uid, std::string& next);

}  // namespace souk
