// SPDX-License-Identifier: GPL-2.0-or-later
// The options of marketctl's verbs about money.
#pragma once

#include <string>

#include "tools/common/ctl.hpp"

namespace souk::tools {

struct MoneyOptions {
    std::string job, user, provider, since, limit, db;
};

// Into the question. Errors: an option of another verb, a value that cannot be.
Status take_money_options(const MoneyOptions& options, CtlQuestion& question);

}  // namespace souk::tools
