// SPDX-License-Identifier: GPL-2.0-or-later
// marketctl cancel: a job, an element of an array, or several jobs. The id of an array's first job
// is that of the array, as list-jobs shows it.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "tools/common/ctl.hpp"

namespace souk::tools {

// Says which jobs are meant, by their names or by their users.
struct CancelOptions {
    std::string name, array;
    bool all = false;
};

// ID, ID[INDEX] (an element), or the options. Errors: the words are wrong.
Result<CtlQuestion> cancel_question(std::span<char*> words, const CancelOptions& options,
                                    const std::string& user);

}  // namespace souk::tools
