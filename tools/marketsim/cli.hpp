// SPDX-License-Identifier: GPL-2.0-or-later
// The verbs share one way to print, and one to fail.
#pragma once

#include <cerrno>
#include <cstdio>
#include <string>

#include "kernel/base/cause.hpp"
#include "kernel/base/result.hpp"
#include "tools/common/typed_options.hpp"

namespace souk::tools {

// All of the text is out, or why not (a full disk, say).
inline Status print(const std::string& text) {
    if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0)
        return fail_errno("standard output", errno);
    return {};
}

// The exit status of a verb that has done what it was told, or has not.
inline int exit_status(const CommandLine& line, const Status& done) {
    if (!done) complain(line.tool, done.error());
    return done ? 0 : 1;
}

inline int usage_error(const CommandLine& line, const std::string& why) {
    complain(line.tool, why, to_string(CauseCode::invalid));
    return 2;
}

}  // namespace souk::tools
