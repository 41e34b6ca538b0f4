// SPDX-License-Identifier: GPL-2.0-or-later
// marketctl deposit, withdraw, transfer, payout and statement: where money comes from and goes to.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tools/common/ctl.hpp"
#include "tools/marketctl/money.hpp"

namespace souk::tools {

struct PayOptions {
    std::string note, of;
};

// Returns nothing if `verb` is none of these. `words` are those that follow it. Errors: a mistake
// on the command line. A statement takes --since and --limit out of `money`.
Result<std::optional<CtlQuestion>> pay_question(std::string_view verb, std::span<char*> words,
                                                const PayOptions& options, bool csv,
                                                MoneyOptions& money);

}  // namespace souk::tools
