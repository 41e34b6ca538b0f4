// SPDX-License-Identifier: GPL-2.0-or-later
// marketctl cancel: jobs by their ids, elements of an array, or jobs by what they have in common.
// The id of an array's first job is that of the array, as list-jobs shows it.
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

// Jobs, with blanks or commas between: ID, ID-NUMBER (of one home, from the one to the other),
// ID[LIST] (elements of an array); or the options. Errors: the words are wrong.
Result<CtlQuestion> cancel_question(std::span<char*> words, const CancelOptions& options,
                                    const std::string& user);

// The same words for `verb` (cancel, hold, release) alone.
Result<CtlQuestion> jobs_question(const std::string& verb, std::span<char*> words);

}  // namespace souk::tools
