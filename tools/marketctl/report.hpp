// SPDX-License-Identifier: GPL-2.0-or-later
// marketctl history and report: the jobs that have ended, and what was used, in sums.
#pragma once

#include <span>
#include <string>

#include "tools/common/ctl.hpp"
#include "tools/marketctl/job_columns.hpp"
#include "tools/marketctl/money.hpp"

namespace souk::tools {

struct ReportOptions {
    std::string by;
    bool csv = false;
};

// Errors: wrong usage. They take --user, --provider, --since and --limit out of `money`.
Result<CtlQuestion> history_question(std::span<char*> words, const ReportOptions& options,
                                     const ColumnOptions& columns, MoneyOptions& money);
Result<CtlQuestion> report_question(std::span<char*> words, const ReportOptions& options,
                                    MoneyOptions& money);

}  // namespace souk::tools
