// SPDX-License-Identifier: GPL-2.0-or-later
// marketctl user: what users may have at most; and a user's token for souk-web.
#pragma once

#include <span>
#include <string>

#include "tools/common/ctl.hpp"

namespace souk::tools {

struct UserOptions {
    std::string spend, jobs, cpus, reserve, hours, credit, allowance, every;
    bool expires = false;
    bool any() const {
        return expires ||
               !(spend + jobs + cpus + reserve + hours + credit + allowance + every).empty();
    }
};

// The tool says this if those options stand with another verb.
extern const char* const for_user_limit;
// `words`: what follows "user". Errors: a mistake on the command line.
Result<CtlQuestion> user_question(std::span<char*> words, const UserOptions& options);
// `words`: what follows "project".
Result<CtlQuestion> project_question(std::span<char*> words);
// Shows the token alone, to be pasted.
Result<std::string> web_token_text(const Answer& answer);

}  // namespace souk::tools
