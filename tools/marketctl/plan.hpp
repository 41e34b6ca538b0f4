// SPDX-License-Identifier: GPL-2.0-or-later
// marketctl plan: what is to run where and until when, as a table, a picture or JSON.
#pragma once

#include <span>
#include <string>

#include "tools/common/ctl.hpp"

namespace souk::tools {

struct PlanOptions {
    std::string until, what_if;
    bool svg = false;
    bool any() const { return svg || !until.empty() || !what_if.empty(); }
};

// Errors: a mistake on the command line.
Result<CtlQuestion> plan_question(std::span<char*> words, const PlanOptions& options);

}  // namespace souk::tools
