// SPDX-License-Identifier: GPL-2.0-or-later
// The options of marketctl's verbs about money, and of lists.
#pragma once

#include <string>

#include "tools/common/ctl.hpp"

namespace souk::tools {

struct MoneyOptions {
    std::string job, user, provider, since, limit, db, state, seen, dir, peer, file;
};

// Seconds of "90m", "12h", "7d".
Result<int64_t> parse_span_s(const char* option, const std::string& text);
// Unix seconds of "90m", "12h", "7d" ago, or of a local date with or without a time.
Result<int64_t> parse_moment(const char* option, const std::string& text);
// marketctl prices: how far back, and what makes a row (empty: so that all fits a screen).
Status take_price_options(const std::string& last, const std::string& step, CtlQuestion& question);

// Puts the options into the question. Errors: an option of another verb, a value that cannot be.
Status take_money_options(const MoneyOptions& options, CtlQuestion& question);

}  // namespace souk::tools
