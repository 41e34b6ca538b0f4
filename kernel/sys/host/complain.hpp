// SPDX-License-Identifier: GPL-2.0-or-later
// A program says with this that it failed: one line on stderr, "program: text". With
// SOUK_ERRORS=json in the environment that line is {"error": {"program", "code", "message"}}
// (docs/api.md).
#pragma once

#include <string_view>

#include "kernel/base/result.hpp"

namespace souk {

void complain(const char* program, std::string_view text, std::string_view code = "failed");
void complain(const char* program, const Error& error);
// Says a mistake on the command line, with the advice to read --help; `why` tells which. Gives the
// exit status of wrong usage, 2.
int complain_usage(const char* program, std::string_view why);

}  // namespace souk
